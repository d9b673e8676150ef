from autoconf_launch.tuning_spaces import accelerator_names, price
from autoconf_launch.tuning_spaces.clusters import prices


def test_the_newest_price_stands_before_older_ones() -> None:
    years = [one.as_of for one in prices("A100-SXM-40GB")]
    assert years[-1].startswith("2023")


def test_of_equal_age_the_lowest_price_counts() -> None:
    found = price("H100-SXM-80GB")
    assert found
    assert (found.cloud, found.usd_per_gpu_hour) == ("lambda", 31.92 / 8)


def test_a_price_says_where_and_when_it_was_read() -> None:
    for gpu in accelerator_names():
        assert all(one.source and one.as_of for one in prices(gpu))


def test_a_gpu_without_a_known_price_has_none() -> None:
    assert price("MI300X-192GB") is None
