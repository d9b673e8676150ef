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
    from .fabrics import fabric, fabric_names
    from .hints import hint
    from .hugging_face import (
        INSTEAD,
        from_hugging_face,
        is_hugging_face,
        is_known_tower,
        is_known_type,
        nearest_type,
        other_parts,
    )
    from .machines import (
        FP32_REACHED,
        REACHED,
        accelerator_names,
        known_accelerator,
        machine,
        node_machine,
        unknown_gpu,
        unrated_machine,
        with_links,
    )
    from .models import (
        known_model,
        model_ids,
        model_names,
        named_model,
        nearest_model_id,
        why_refused,
    )
    from .presets import Preset, preset, preset_names
    from .recommend_tables import (
        CONF,
        base_template,
        generation_of,
        grid_rows,
        is_shipped,
        predefined_searches,
        published_speeds,
        shipped_base_config,
        tables,
        usual_of,
    )
    from .schema import SCHEMAS, schema_text
    from .shapes import build_architecture, contradiction
    from .spaces import (
        DEFAULT_ORIGIN,
        EXTERNAL_RULES,
        BuiltinRules,
        FamilyKnob,
        KnobRules,
        Section,
        SpaceKnob,
        ZeroSearch,
        default_families,
        default_space,
        given_knobs,
        parse_families,
        parse_space,
        zero_choices,
    )
    from .trainers import CHECKED, SCHEDULES, TRAINER_NAMES, TRAINERS, trainer
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
                "INSTEAD from_hugging_face is_hugging_face is_known_tower is_known_type "
                "nearest_type other_parts"
            ),
            ".fabrics": "fabric fabric_names",
            ".machines": (
                "FP32_REACHED REACHED accelerator_names known_accelerator machine node_machine "
                "unknown_gpu unrated_machine with_links"
            ),
            ".models": (
                "known_model model_ids model_names named_model nearest_model_id why_refused"
            ),
            ".presets": "Preset preset preset_names",
            ".recommend_tables": (
                "CONF base_template generation_of grid_rows is_shipped predefined_searches "
                "published_speeds shipped_base_config tables usual_of"
            ),
            ".schema": "SCHEMAS schema_text",
            ".shapes": "build_architecture contradiction",
            ".spaces": (
                "DEFAULT_ORIGIN EXTERNAL_RULES BuiltinRules FamilyKnob KnobRules Section "
                "SpaceKnob ZeroSearch default_families default_space given_knobs "
                "parse_families parse_space zero_choices"
            ),
            ".trainers": "CHECKED SCHEDULES TRAINER_NAMES TRAINERS trainer",
        },
    )
