"""The closed list of reasons for refusing an item, and of repairs made on the way.

The ledger, the summary and the tests speak in these codes; a new one is added here first.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

REASONS: Final = MappingProxyType({
    # files
    "file_missing": "the source names a file that is not there",
    "file_unreadable": "the file cannot be opened or is cut short (broken archive or compression)",
    "unsafe_member": "a path or an archive member would lie outside its folder, or is a link or device",
    "empty_file": "the file has no content",
    "format_unknown": "the content is none of the formats that are read",
    "format_mismatch": "the content is of a known format, but not one that can serve here",
    "parse_failed": "the file breaks the rules of its format",
    "record_missing": "a multi-record ligand file has no record of that number",
    # structures
    "structure_empty": "no atoms are left in the structure",
    "structure_bad_coordinates": "coordinates are missing, not finite or all zero",
    "no_protein": "no polymer residue, hence no pocket",
    "too_large": "more atoms than the format or the options allow",
    # ligands
    "ligand_missing": "no residue or record is the ligand that was asked for, or none can be one",
    "ligand_ambiguous": "more than one residue could be the ligand and nothing says which",
    "ligand_unreadable": "the ligand's chemistry cannot be read, and no known repair helps",
    "ligand_no_3d": "the ligand has no three-dimensional coordinates",
    "ligand_no_bond_orders": "no source of bond orders for this residue name",
    "ligand_empty": "the ligand has no heavy atom",
    "ligand_artefact": "the ligand is a crystallisation artefact, an ion or water",
    "pocket_empty": "no residue within the pocket radius of the ligand",
    # labels (only with options that ask for a label)
    "label_missing": "the source has no label for this complex",
    "label_unreadable": "the label's text, number or unit cannot be understood",
    "label_nonpositive": "a concentration of zero or less",
    "label_implausible": "a pK outside 0 to 15",
    "label_relative": "a free energy relative to a reference ligand: no pK can be had from it",
    # the run
    "id_missing": "a row of the table has no id",
    "id_unusable": "the id is too long, or holds control characters",
    "duplicate_id": "another item of this run has the same id",
    "duplicate_content": "another item of this run has the same structure, ligand and label",
    "filtered": "an optional quality filter, named in the message",
    "timeout": "reading it took longer than the limit",
    "crashed": "reading it ended the process",
    "internal_error": "a fault of ours: please report it with the file",
})  # fmt: skip

REPAIRS: Final = MappingProxyType({
    "sdf_hcount_field": "hydrogen-count fields of a V2000 atom block, written by X-TOOL, were ignored",
    "sdf_bond_topology": "bond-topology fields of a V2000 bond block, written by X-TOOL, were ignored",
    "aromatic_nh_added": "one or two aromatic nitrogens were given the hydrogen the file left out",
    "alternate_file": "the ligand was read from another file beside the first",
    "text_decoded": "bytes that are not UTF-8 were replaced in text fields",
    "element_guessed": "element columns that are blank or name no element were filled from atom names",
    "charge_swapped": "charges written sign first were accepted",
    "squeezed_columns": "numbers run together were split at the fixed columns",
    "ligand_after_endmdl": "atoms after ENDMDL were taken as part of the first model",
    "charge_adjusted": "a formal charge was set where the drawn valence demands it",
    "delocalised_group": "a carboxylate, guanidinium or phosphate drawn with double bonds only got one form",
    "fragments_dropped": "counter-ions or solvent beside the ligand in its file were left out",
    "atoms_missing": "the residue lacks heavy atoms of its dictionary entry",
    "doubled_atoms": "of two atoms of one name in a residue, the one nearest to its other atoms was kept",
    "ligand_copy_removed": "the structure file held the ligand, too; that copy was left out of the pocket",
    "smiles_template": "bonds came from a SMILES, matched to the distances between the residue's atoms",
    "bonds_perceived": "bond orders were told from distances and angles, for want of any other source",
    "no_sanitisation": "aromaticity could be perceived only without a full valence check",
})  # fmt: skip
