"""Facts about a script, read without running it."""

from .facts import (
    FROM_CLASSES,
    FROM_FUNCTIONS,
    LIGHTNING_PACKAGES,
    Declared,
    ScriptFacts,
    declared_in,
    facts_of,
)
from .modules import (
    OwnSources,
    is_python,
    leading_imports,
    module_problem,
    own_sources,
    plain_text,
    script_path,
)
from .source import (
    LoaderBatch,
    NamedFile,
    ScriptSource,
    SpaceFile,
    hydra_values,
    loader_batches,
    refused_flags,
)
