"""Residue and atom names that need to be known by heart.

Force fields and docking programs name protonation states; the Chemical Component Dictionary has other
molecules under most of those names. The lists of additives gather what recurs in deposited structures as
buffer, cryoprotectant, precipitant, detergent or reducing agent (compare the artefact lists of BioLiP,
Yang et al., Nucleic Acids Res. 41 (2013) D1096, and of PLINDER, Durairaj et al., bioRxiv 2024.07.17.603955).
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

# Name in a force field -> name in the dictionary (AMBER, CHARMM, GROMOS, OPLS, Maestro).
ALIASES: Final = MappingProxyType({
    "HID": "HIS", "HIE": "HIS", "HIP": "HIS", "HSD": "HIS", "HSE": "HIS", "HSP": "HIS", "HISD": "HIS",
    "HISE": "HIS", "HISH": "HIS", "HISB": "HIS", "HISA": "HIS", "CYX": "CYS", "CYM": "CYS", "CYZ": "CYS",
    "CYS2": "CYS", "CYSH": "CYS", "ASH": "ASP", "ASPH": "ASP", "ASPP": "ASP", "GLH": "GLU", "GLUH": "GLU",
    "GLUP": "GLU", "LYN": "LYS", "LYSH": "LYS", "LSN": "LYS", "ARN": "ARG", "ARGN": "ARG", "TYM": "TYR",
    "NMA": "NME", "NHE": "NH2", "ACEM": "ACE",
})  # fmt: skip
# What an alias says of charge and hydrogens, where it differs from the usual state of the residue:
# atom -> (formal charge, hydrogens).
STATES: Final = MappingProxyType({
    "HID": {"ND1": (0, 1), "NE2": (0, 0)}, "HSD": {"ND1": (0, 1), "NE2": (0, 0)},
    "HISD": {"ND1": (0, 1), "NE2": (0, 0)}, "HISA": {"ND1": (0, 1), "NE2": (0, 0)},
    "HIP": {"ND1": (1, 1), "NE2": (0, 1)}, "HSP": {"ND1": (1, 1), "NE2": (0, 1)},
    "HISH": {"ND1": (1, 1), "NE2": (0, 1)}, "CYM": {"SG": (-1, 0)}, "CYX": {"SG": (0, 0)},
    "CYS2": {"SG": (0, 0)}, "ASH": {"OD2": (0, 1)}, "ASPH": {"OD2": (0, 1)}, "ASPP": {"OD2": (0, 1)},
    "GLH": {"OE2": (0, 1)}, "GLUH": {"OE2": (0, 1)}, "GLUP": {"OE2": (0, 1)}, "LYN": {"NZ": (0, 2)},
    "LSN": {"NZ": (0, 2)}, "ARN": {"NH2": (0, 1)}, "ARGN": {"NH2": (0, 1)}, "TYM": {"OH": (-1, 0)},
})  # fmt: skip
# The usual state at pH 7 where the dictionary draws another: it has the free acids and the imidazolium.
USUAL: Final = MappingProxyType({
    "ASP": {"OD2": (-1, 0)}, "GLU": {"OE2": (-1, 0)}, "HIS": {"ND1": (0, 0)},
})  # fmt: skip
# Atom names of force fields and of the PDB before 2007 -> the dictionary's.
ATOM_ALIASES: Final = MappingProxyType({
    "CD": "CD1", "OT1": "O", "OT2": "OXT", "OT": "OXT", "OC1": "O", "OC2": "OXT", "O1P": "OP1", "O2P": "OP2",
    "O3P": "OP3", "C5M": "C7",
})  # fmt: skip

WATERS: Final = frozenset({"HOH", "DOD", "WAT", "H2O", "OH2"})
# Names of water in simulations that the dictionary gives to other molecules: water if one oxygen and no more.
WATER_MODELS: Final = frozenset(
    {"TIP", "TIP3", "TIP4", "TIP5", "TP3", "TP4", "TP5", "T3P", "T4P", "SOL", "SPC"}
)

CAPS: Final = frozenset({"ACE", "NME", "NH2", "FOR"})  # ends of chains, never a ligand

ARTEFACTS: Final = frozenset({
    "GOL", "EDO", "PGO", "PGR", "PDO", "BU1", "BU2", "BU3", "MPD", "MRD", "HEX", "HEZ", "PEG", "PGE",
    "PG4", "P6G", "1PE", "2PE", "7PE", "PE3", "PE4", "PE5", "PE6", "PE7", "PE8", "PEU", "PG0", "PG5",
    "PG6", "P3G", "P33", "P4G", "12P", "15P", "33O", "XPE", "ETE", "M2M", "TOE", "PEO", "POL", "IPA",
    "IOH", "EOH", "MOH", "ACN", "DMS", "DMF", "DIO", "DOX", "ACT", "ACY", "FMT", "CIT", "FLC", "ICT",
    "TLA", "TAR", "SRT", "MLI", "MLA", "MLT", "LMR", "SIN", "SUC", "OXL", "OXD", "SO4", "SO3", "PO4",
    "PI", "PO3", "2HP", "NO3", "NO2", "SCN", "AZI", "CYN", "BCT", "CO3", "BO3", "BO4", "CAC", "VO4",
    "WO4", "ALF", "AF3", "BEF", "MGF", "PER", "OXY", "OH", "NH4", "NH3", "IMD", "TRS", "BTB", "BCN",
    "TAM", "EPE", "MES", "NHE", "CXS", "CPS", "MPO", "MOPS", "PIN", "B3P", "BIS", "TEA", "URE", "GAI",
    "BME", "DTT", "DTU", "DTV", "DTD", "TCE", "HED", "MTL", "TFA", "TCA", "LDA", "BOG", "BNG", "HTG",
    "LMT", "LMU", "DMU", "DDQ", "C8E", "C10", "SDS", "CHT", "OLA", "OLB", "OLC", "MYS", "D10", "D12",
    "UND", "DD9", "OCT", "NON", "UNX", "UNL", "UNK", "CM5", "SPM", "SPD", "PUT", "GLY", "ALA", "BET",
    "SAR", "1PG", "AE3", "AE4", "P4C", "JEF", "7PG", "PIG", "PGF", "P2K", "CE1", "CE9", "CXE", "OTE", "N8E",
    "DR6", "B7G", "HSG", "SOG", "UMQ", "MA4", "HTO", "DET", "C15", "OES", "LI1", "144", "1PS", "LCP", "BF4",
    "SE4", "MOO", "2PO", "D1D", "PPI", "EEE", "ETF", "SBT",
})  # fmt: skip
COFACTORS: Final = frozenset({
    "HEM", "HEC", "HEA", "HEB", "HAS", "NAD", "NAI", "NAP", "NDP", "FAD", "FDA", "FMN", "SAM", "SAH",
    "ATP", "ADP", "AMP", "ANP", "ACP", "AGS", "GTP", "GDP", "GNP", "GSP", "COA", "ACO", "PLP", "PMP",
    "TPP", "TDP", "B12", "CNC", "COB", "BTN", "H4B", "THG", "MTE", "MGD", "PQQ", "F43", "CLA", "BCL",
    "CHL", "PEB", "SF4", "FES", "F3S", "FS4",
})  # fmt: skip
