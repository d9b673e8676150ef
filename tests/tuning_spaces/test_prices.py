from autoconf_launch.tuning_spaces import accelerator_names, price
from autoconf_launch.tuning_spaces.clusters import prices


def test_prices_have_an_age_a_source_and_an_order() -> None:
    years = [one.as_of for one in prices("A100-SXM-40GB")]
    assert years[-1].startswith("2023")
    found = price("H100-SXM-80GB")
    assert found
    assert (found.cloud, found.usd_per_gpu_hour) == ("lambda", 31.92 / 8)
    for gpu in accelerator_names():
        assert all(one.source and one.as_of for one in prices(gpu))
    assert price("MI300X-192GB") is None
