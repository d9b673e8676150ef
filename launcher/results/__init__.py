"""A results folder: paths, journal, lease, fingerprint, secrets."""

from typing import TYPE_CHECKING

from autoconf_launch.core import attach

if TYPE_CHECKING:
    from .folder import OpenFolder, fingerprint, open_folder, render_unsearched, write_environment
    from .journal import (
        Earlier,
        Fingerprint,
        Journal,
        JournalContents,
        JournalLineError,
        SpaceLine,
        Started,
        read_journal,
    )
    from .lease import HEARTBEAT_S, is_held
    from .own_files import key_of, open_file, open_private, read_file, read_past, remember
    from .paths import (
        CONFIG,
        DS_CONFIG,
        METRICS_FILE,
        ResultsPaths,
        is_misnamed,
        is_unwritable,
        saved_pid,
        sentence_on,
    )
    from .reading import (
        Comparison,
        Difference,
        FolderState,
        Pair,
        Results,
        SlowestRanks,
        SpeedVerdict,
        StepsTail,
        compare_results,
        read_result,
        read_results,
        tell_end,
        training_differences,
    )
    from .secrets import (
        document_without_secrets,
        dotenv_words,
        is_secret,
        is_secret_variable,
        known_secrets,
        named_values,
        own_secrets,
        shell_command,
        terminal_text,
        text_without_secrets,
        write_guarded,
        write_plain,
        write_private,
    )
else:
    __getattr__ = attach(
        __name__,
        {
            ".folder": ("OpenFolder fingerprint open_folder render_unsearched write_environment"),
            ".journal": (
                "Earlier Fingerprint Journal JournalContents JournalLineError SpaceLine "
                "Started read_journal"
            ),
            ".lease": "HEARTBEAT_S is_held",
            ".own_files": "key_of open_file open_private read_file read_past remember",
            ".paths": (
                "CONFIG DS_CONFIG METRICS_FILE ResultsPaths is_misnamed is_unwritable "
                "saved_pid sentence_on"
            ),
            ".reading": (
                "Comparison Difference FolderState Pair Results SlowestRanks SpeedVerdict "
                "StepsTail compare_results read_result read_results tell_end training_differences"
            ),
            ".secrets": (
                "document_without_secrets dotenv_words is_secret is_secret_variable "
                "known_secrets named_values own_secrets shell_command terminal_text "
                "text_without_secrets write_guarded write_plain write_private"
            ),
        },
    )
