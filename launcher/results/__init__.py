"""A results folder: paths, journal, lease, fingerprint, secrets."""

from typing import TYPE_CHECKING

from autoconf_launch.core import attach

if TYPE_CHECKING:
    from .comparison import (
        Comparison,
        Difference,
        Pair,
        SpeedVerdict,
        compare_results,
        training_differences,
    )
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
    from .own_files import open_file, open_private, read_file
    from .past_times import key_of, read_past, remember
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
        FolderState,
        Results,
        SlowestRanks,
        StepsTail,
        read_result,
        read_results,
        tell_end,
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
            ".comparison": (
                "Comparison Difference Pair SpeedVerdict compare_results training_differences"
            ),
            ".folder": ("OpenFolder fingerprint open_folder render_unsearched write_environment"),
            ".journal": (
                "Earlier Fingerprint Journal JournalContents JournalLineError SpaceLine "
                "Started read_journal"
            ),
            ".lease": "HEARTBEAT_S is_held",
            ".own_files": "open_file open_private read_file",
            ".past_times": "key_of read_past remember",
            ".paths": (
                "CONFIG DS_CONFIG METRICS_FILE ResultsPaths is_misnamed is_unwritable "
                "saved_pid sentence_on"
            ),
            ".reading": (
                "FolderState Results SlowestRanks StepsTail read_result read_results tell_end"
            ),
            ".secrets": (
                "document_without_secrets dotenv_words is_secret is_secret_variable "
                "known_secrets named_values own_secrets shell_command terminal_text "
                "text_without_secrets write_guarded write_plain write_private"
            ),
        },
    )
