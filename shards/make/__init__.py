"""Parts to data sets: survey, split, pack, write; verify, repair, convert, export."""
