"""Data that people edit, and its loader."""

from typing import TYPE_CHECKING

from autoconf_launch.core import attach

if TYPE_CHECKING:
    from .clusters import (
        MOST_GPUS,
        cluster_of_document,
        cluster_template,
        equal_nodes,
        parse_cluster,
        price,
        usable_bytes,
        with_network_of,
    )
    from .hints import hint
    from .hugging_face import (
        INSTEAD,
        from_hugging_face,
        is_hugging_face,
        is_known_type,
        nearest_type,
        other_parts,
    )
    from .loader import (
        DEFAULT_ORIGIN,
        FamilyKnob,
        Section,
        SpaceKnob,
        default_families,
        default_space,
        parse_families,
        parse_space,
    )
    from .machines import (
        accelerator_names,
        known_accelerator,
        machine,
        unknown_gpu,
        unrated_machine,
        with_links,
    )
    from .merge import (
        EXTERNAL_RULES,
        BuiltinRules,
        KnobRules,
        ZeroSearch,
        given_knobs,
        zero_choices,
    )
    from .models import (
        build_architecture,
        contradiction,
        known_model,
        model_ids,
        model_names,
        named_model,
        nearest_model_id,
        why_refused,
    )
    from .presets import Preset, preset, preset_names
    from .recommend_tables import base_template, generation_of, grid_rows, published_speeds, tables
    from .schema import SCHEMAS, schema_text
    from .search_configs import (
        CONF,
        is_shipped,
        predefined_searches,
        shipped_base_config,
        usual_of,
    )
    from .trainers import CHECKED, TRAINER_NAMES, TRAINERS, trainer
else:
    __getattr__ = attach(
        __name__,
        {
            ".clusters": (
                "MOST_GPUS cluster_of_document cluster_template equal_nodes parse_cluster "
                "price usable_bytes with_network_of"
            ),
            ".hints": "hint",
            ".hugging_face": (
                "INSTEAD from_hugging_face is_hugging_face is_known_type nearest_type other_parts"
            ),
            ".loader": (
                "DEFAULT_ORIGIN FamilyKnob Section SpaceKnob default_families default_space "
                "parse_families parse_space"
            ),
            ".machines": (
                "accelerator_names known_accelerator machine unknown_gpu unrated_machine "
                "with_links"
            ),
            ".merge": "EXTERNAL_RULES BuiltinRules KnobRules ZeroSearch given_knobs zero_choices",
            ".models": (
                "build_architecture contradiction known_model model_ids model_names "
                "named_model nearest_model_id why_refused"
            ),
            ".presets": "Preset preset preset_names",
            ".recommend_tables": "base_template generation_of grid_rows published_speeds tables",
            ".schema": "SCHEMAS schema_text",
            ".search_configs": "CONF is_shipped predefined_searches shipped_base_config usual_of",
            ".trainers": "CHECKED TRAINER_NAMES TRAINERS trainer",
        },
    )
