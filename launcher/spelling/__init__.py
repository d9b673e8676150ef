"""What all dialects share: how a knob is spelled, read and edited."""

from typing import TYPE_CHECKING

from autoconf_launch.core import lazy_names

if TYPE_CHECKING:
    from .base import (
        NEWEST,
        Dialect,
        Known,
        Renamed,
        Rendered,
        RenderedFile,
        TrialNeeds,
        UserSettings,
        Version,
        check_version,
        installed_version,
        refuse_renamed,
    )
    from .batch_names import (
        ACCUMULATION_NAMES,
        MICRO_BATCH_NAMES,
        REPORTING_TOOLS,
        batch_in_source,
        is_accumulation,
        is_elsewhere,
        is_micro_batch,
        is_of_batch,
        may_derive_accumulation,
        name_key,
        name_parts,
        silent_variables,
    )
    from .documents import (
        DEGREES,
        SPLITS,
        OpenDocument,
        edit_toml,
        first_of_list,
        fixed_accumulation,
        is_listed,
        is_open,
        lists_micro_batches,
        on_unfilled,
        on_varying_batch,
        open_document,
        parse_toml,
        refuse_lists,
        toml_of,
        with_listed,
        with_zero_knobs,
    )
    from .launch_inputs import (
        TRUE_WORDS,
        Argument,
        Key,
        LaunchInputs,
        Place,
        Variable,
        find_argument,
        path_argument,
        put_argument,
        scalar,
        with_argument,
        with_path_argument,
        without_arguments,
    )
    from .own_documents import document_key, document_values, file_of_key, script_documents
    from .own_words import (
        Told,
        bare,
        declared_as,
        known_names,
        move_asides,
        on_no_batch,
        values_of,
    )
    from .spelling import (
        CANONICAL,
        GLOBAL_BATCH,
        MEASURED,
        SWITCHED,
        Spelled,
        Spelling,
        SplitBatch,
        SplitMicroBatch,
        find_row,
    )
    from .table_dialect import UNSET, Reading, TableDialect
else:
    __getattr__ = lazy_names(__name__, __file__)
