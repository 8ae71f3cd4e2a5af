"""The five studies, each with its cells, its sections and its claims."""

from kvlab.studies import s000, s001, s002, s003, s004, scaling

STUDIES = {
    "003": s003,
    "scaling": scaling,
    "004": s004,
    "001": s001,
    "000": s000,
    "002": s002,
}
