"""Other hosts: how one is reached, what it is, and the line to the agent there."""

from .description import HostDescription, Introduction, describe_hosts
from .folder_line import FolderLine, Starter, make_line_folder
from .gpus import (
    BUS_ORDER,
    HIP_VISIBLE,
    ORDER,
    PROHIBITED,
    VISIBLE,
    Gpu,
    list_gpus,
    names_none,
    seen_at_once,
)
from .kubernetes_jobs import (
    JOB_HANDLE,
    KubernetesApi,
    PodsStarter,
    open_pods,
    pod_command,
)
from .line import HostLine, agent_command
from .lines import (
    UNSAID_WAIT_S,
    AgentLine,
    open_lines,
    wait_text,
)
from .pod_manifests import (
    PodsOrder,
    PodsSize,
    host_name_of_first,
    make_manifests,
    read_pod_template,
    without_values,
)
from .ray_agents import ANY_NODE, RayNode, RaySize, find_ray_nodes, open_ray
from .reach import LOCAL, is_this_machine, require_program
from .slurm_jobs import (
    JOB_ID,
    SlurmQueue,
    SlurmStarter,
    cancel_jobs,
    find_job_states,
    is_slurm_here,
    pending_text,
    submit_job,
)
