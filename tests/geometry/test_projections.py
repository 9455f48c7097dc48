"""Principal components against an eigendecomposition, and the token map built of them."""

import numpy as np
import pytest
import torch

from unembed.errors import UsageError
from unembed.geometry.projections import principal_components, token_map


@pytest.mark.parametrize(("rows", "width"), [(9, 4), (4, 9), (30, 2), (2, 2), (50, 50)])
def test_oracle_eigenvectors_of_the_covariance(rows, width):
    table = np.random.default_rng(rows * width).normal(size=(rows, width)) * np.arange(1, width + 1)
    k = min(rows, width, 3)
    coordinates, shares = principal_components(torch.from_numpy(table), k)
    coordinates, shares = coordinates.numpy(), shares.numpy()
    centred = table - table.mean(0)
    values, vectors = np.linalg.eigh(centred.T @ centred)
    order = np.argsort(values)[::-1][:k]
    np.testing.assert_allclose(shares, values[order] / values.sum(), atol=1e-10)
    for c, direction in enumerate(vectors[:, order].T):
        expected = centred @ direction
        if values[order][c] < 1e-9 * values.sum():
            continue  # no variance left: any direction will do
        np.testing.assert_allclose(np.abs(coordinates[:, c]), np.abs(expected), atol=1e-8)


def test_directions_are_turned_so_that_the_largest_coordinate_is_positive():
    table = torch.randn(20, 5, generator=torch.Generator().manual_seed(0))
    once, _ = principal_components(table, 3)
    flipped, _ = principal_components(-table, 3)
    for coordinates in (once, flipped):
        largest = coordinates.abs().argmax(0)
        assert (coordinates[largest, torch.arange(3)] > 0).all()


def test_distances_are_kept_when_all_components_are():
    table = torch.randn(7, 4, generator=torch.Generator().manual_seed(1)).double()
    coordinates, shares = principal_components(table, 4)
    torch.testing.assert_close(torch.cdist(coordinates, coordinates), torch.cdist(table, table))
    assert float(shares.sum()) == pytest.approx(1)


def test_equal_rows_have_no_variance_and_no_nan():
    coordinates, shares = principal_components(torch.ones(5, 3), 2)
    assert coordinates.abs().max() == 0
    assert shares.tolist() == [0, 0]


def test_message_when_there_are_fewer_directions_than_components():
    with pytest.raises(UsageError, match=r"3 components asked of a \[5, 2\] table"):
        principal_components(torch.ones(5, 2), 3)


def tables():
    generator = torch.Generator().manual_seed(2)
    before = torch.randn(6, 4, generator=generator)
    after = before.clone()
    after[3] += 10.0  # the token that moves
    return [("before", before), ("after", after)]


def test_map_holds_every_known_token_in_each_state_and_leaves_padding_out():
    texts = ["a", "b", "c", "d"]
    result = token_map(tables(), texts)
    points = result.tables["points"]
    assert points["text"].tolist() == texts * 2
    assert points["when"].tolist() == ["before"] * 4 + ["after"] * 4
    expected, share = principal_components(tables()[1][1][:4], 2)
    np.testing.assert_allclose(points["x"][4:], expected[:, 0].numpy())
    assert result.values["explained_after"] == pytest.approx(float(share.sum()))
    assert "d" not in set(result.tables["neighbours"]["neighbour"][result.tables["neighbours"]["text"] == "d"])


def test_focus_defaults_to_what_moved_the_most():
    near = token_map(tables(), ["a", "b", "c", "d", "e", "f"]).tables["neighbours"]
    assert near["text"][0] == "d"


def test_neighbours_are_ranked_from_one_and_measured_in_all_dimensions():
    near = token_map(tables(), ["a", "b", "c", "d", "e", "f"], focus=[0], n_neighbours=3).tables["neighbours"]
    assert near["rank"].tolist() == [1, 2, 3, 1, 2, 3]
    table = tables()[0][1].double()
    cosines = torch.nn.functional.cosine_similarity(table[:1], table).tolist()
    best = sorted(range(1, 6), key=lambda i: -cosines[i])[:3]
    assert near["neighbour"][:3].tolist() == ["abcdef"[i] for i in best]
    assert near["cosine"][:3].tolist() == pytest.approx([cosines[i] for i in best], abs=1e-6)


def test_rows_of_zeros_are_nobodys_neighbour():
    before = torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.5, 0.5]])
    near = token_map([("before", before)], ["a", "zero", "c"], focus=[0, 1]).tables["neighbours"]
    assert near["neighbour"].tolist() == ["c"]


def test_groups_colour_the_points():
    result = token_map(tables(), ["a", "b"], groups=["x", "y"])
    assert result.tables["points"]["group"].tolist() == ["x", "y"] * 2
    assert result.pictures[0].color == "group"
    assert token_map(tables(), ["a", "b"]).pictures[0].color is None


def test_message_when_texts_are_more_than_rows():
    with pytest.raises(UsageError, match="7 texts, but the table 'before' has only 6 rows"):
        token_map(tables(), list("abcdefg"))
