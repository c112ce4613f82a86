"""The mistakes a user can correct: each is one clear line, which the command line prints without a traceback."""


class FedgalaError(Exception):
    """Something the user can put right; the message says what, where, what is allowed and what to do."""


class ConfigError(FedgalaError, ValueError):
    """A setting that is unknown, of the wrong type or out of range."""


class DataError(FedgalaError):
    """Images that are missing, unreadable, too few or not what the configuration names."""


class CheckpointError(FedgalaError):
    """A checkpoint, record or cache on disk that is damaged or belongs to something else."""


class TrainingError(FedgalaError):
    """Training that cannot go on: a loss that is not a number, no client left."""
