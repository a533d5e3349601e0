"""The clustering step as a scikit-learn estimator."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.cluster import AgglomerativeClustering
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data

from clove.clustering.arrays import (
    FloatArray,
    IntArray,
    count_groups,
    few_distinct,
    group_means,
    number_by_first_member,
)
from clove.clustering.first_neighbours import finch_k, finch_labels, refuse_finch_of
from clove.clustering.kmeans import kmeans_labels, kmeans_labels_from_sample
from clove.clustering.sampling import EXACT_LIMIT, systematic_sample
from clove.clustering.selection import Choice, merge_ratio_k, refuse_ward_of, silhouette_k
from clove.clustering.transforms import POSITIVE_ONLY, TRANSFORMS, transform_losses

# What the methods that compare every client with every other say to too many clients.
REFUSALS = {"agglomerative": refuse_ward_of, "finch": refuse_finch_of}


class LossVectorClustering(ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Group clients by their losses on a set of models.

    Each client's row of losses is a vector; clients of one kind have similar losses on every model,
    so their vectors lie close together. Where there are fewer distinct vectors than clusters asked
    for, each distinct vector is a cluster, and ``n_clusters_`` says how many that makes.

    Some of this compares every client with every other. Above ``exact_limit`` clients it is done on
    a sample of that many, and ``sample_size_`` says so: the number of clusters is chosen on it, and
    k-means makes its ``n_init`` starts on it; one run over all clients follows, from the best of
    these. Clients of one kind are seen if a few of them are in the sample, which holds
    ``exact_limit`` of n clients, and of each model's best clients their share to within one. By
    default, of a million clients, a kind that is 1 in 1,000 has about 10 in the sample, and one
    that is 1 in 10,000 about one, too few to count as a cluster.

    Parameters
    ----------
    n_clusters : int or "auto", default=8
        How many clusters to form; "auto" chooses.
    max_clusters : int, default=15
        The largest number "auto" may choose.
    selection : {"silhouette", "merge-ratio"}, default="silhouette"
        How "auto" chooses: by the best silhouette of Ward's clusterings, as in the paper (of
        FINCH's own partitions for ``method="finch"``), or by the largest jump in Ward's merge
        heights, which can also find that there is only one group.
    selection_threshold : float, default=2.0
        The smallest ratio of merge heights that counts as a jump, for "merge-ratio".
    silhouette_margin : float, default=1.0
        The factor by which the silhouette of a larger number of clusters must exceed the best so
        far. The authors' experiments used 1.10.
    silhouette_repeats : int, default=1
        As how many clients each counts in silhouettes, where as many clusters as clients may be
        tried; see `silhouette_k`. The authors' experiments used 5.
    method : {"kmeans", "agglomerative", "finch"}, default="kmeans"
        How to cluster. Agglomerative is Ward's, for at most 30,000 clients; FINCH is for at most
        100,000. All distances are Euclidean.
    transform : {"identity", "sqrt", "log", "row"}, default="identity"
        What to do to losses first; see `transform_losses`. Read it back with ``get_params()``.
    n_init : int or "auto", default=10
        How many starts k-means makes.
    exact_limit : int, default=10000
        Up to how many clients everything is exact, and the size of the sample above that.
    random_state : int, RandomState or None, default=None
        What k-means draws its starts from, and above ``exact_limit`` clients the sample is drawn
        from. Nothing else is random.

    Attributes
    ----------
    labels_ : ndarray of shape (n_clients,)
        Each client's cluster, numbered in the order of their first clients.
    n_clusters_ : int
        How many clusters there are.
    cluster_centers_ : ndarray of shape (n_clusters_, n_models)
        The mean of each cluster, in the transformed space.
    choice_ : Choice or None
        How the number of clusters was chosen; None if it was given.
    runner_up_ : int or None
        The number of clusters that would have been chosen next; None if there was no choice.
    sample_size_ : int or None
        How many clients the sample held; None if there was none, and all is exact.
    n_features_in_ : int
        The number of models.

    References
    ----------
    R. Bhatia, N. Papadis, M. Kodialam, T. V. Lakshman, S. Chakrabarty, "CLoVE: Personalized
    Federated Learning through Clustering of Loss Vector Embeddings", ICML 2026.

    Examples
    --------
    >>> losses = [[0.1, 2.0, 2.1], [0.2, 1.9, 2.2], [2.0, 0.1, 1.8], [2.1, 0.2, 1.9]]
    >>> LossVectorClustering(n_clusters=2, random_state=0).fit_predict(losses)
    array([0, 0, 1, 1])
    >>> chosen = LossVectorClustering(n_clusters="auto", selection="merge-ratio").fit(losses)
    >>> chosen.n_clusters_, chosen.runner_up_
    (2, 3)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_clusters": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
        "max_clusters": [Interval(Integral, 1, None, closed="left")],
        "selection": [StrOptions({"silhouette", "merge-ratio"})],
        "selection_threshold": [Interval(Real, 1, None, closed="left")],
        "silhouette_margin": [Interval(Real, 0, None, closed="neither")],
        "silhouette_repeats": [Interval(Integral, 1, None, closed="left")],
        "method": [StrOptions({"kmeans", "agglomerative", "finch"})],
        "transform": [StrOptions(set(TRANSFORMS))],
        "n_init": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
        "exact_limit": [Interval(Integral, 2, None, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        n_clusters: int | str = 8,
        *,
        max_clusters: int = 15,
        selection: str = "silhouette",
        selection_threshold: float = 2.0,
        silhouette_margin: float = 1.0,
        silhouette_repeats: int = 1,
        method: str = "kmeans",
        transform: str = "identity",
        n_init: int | str = 10,
        exact_limit: int = EXACT_LIMIT,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.max_clusters = max_clusters
        self.selection = selection
        self.selection_threshold = selection_threshold
        self.silhouette_margin = silhouette_margin
        self.silhouette_repeats = silhouette_repeats
        self.method = method
        self.transform = transform
        self.n_init = n_init
        self.exact_limit = exact_limit
        self.random_state = random_state

    @property
    def transform(self) -> str:
        """Not readable: scikit-learn takes whatever has this attribute for a transformer."""
        raise AttributeError("transform is a parameter: read it with get_params()['transform']")

    @transform.setter
    def transform(self, value: str) -> None:
        self.__dict__["transform"] = value

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name, `transform` among them."""
        return {name: vars(self)[name] for name in self._get_param_names()}

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Group the clients.

        Parameters
        ----------
        X : array-like of shape (n_clients, n_models)
            The loss of each model on each client's data.
        y : ignored

        Returns
        -------
        LossVectorClustering
            Itself, fitted.
        """
        self._validate_params()
        vectors = self._embed(X, reset=True)
        if self.method in REFUSALS:
            REFUSALS[self.method](len(vectors))
        sample = self._sample(vectors)
        self.sample_size_ = None if sample is None else len(sample)
        self.choice_: Choice | None = None
        if self.n_clusters == "auto":
            choice = self._choose(vectors if sample is None else sample)
            self.choice_ = replace(choice, sample=self.sample_size_)
        self.runner_up_ = self.choice_.runner_up if self.choice_ else None
        wanted = self.choice_.n_clusters if self.choice_ else int(self.n_clusters)
        self.labels_ = number_by_first_member(self._group(vectors, sample, wanted))
        self.n_clusters_ = count_groups(self.labels_)
        self.cluster_centers_ = group_means(vectors, self.labels_)
        return self

    def predict(self, X: ArrayLike) -> IntArray:
        """Return, for each client, the cluster whose centre is nearest.

        Parameters
        ----------
        X : array-like of shape (n_clients, n_models)
            Losses of the same models on the data of other clients, or of the same.

        Returns
        -------
        ndarray of shape (n_clients,)
            A cluster each; of equally near ones the first.
        """
        check_is_fitted(self)
        nearest: IntArray = cdist(self._embed(X, reset=False), self.cluster_centers_).argmin(axis=1)
        return nearest

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = self._transform in POSITIVE_ONLY
        return tags

    @property
    def _transform(self) -> str:
        name: str = vars(self)["transform"]
        return name

    def _embed(self, X: ArrayLike, *, reset: bool) -> FloatArray:
        losses = validate_data(
            self,
            X,
            reset=reset,
            dtype=np.float64,
            ensure_non_negative=self._transform in POSITIVE_ONLY,
        )
        return transform_losses(losses, self._transform)

    def _sample(self, vectors: FloatArray) -> FloatArray | None:
        """Return the vectors of a sample, where there are too many and something is asked of it."""
        choosing = self.n_clusters == "auto"
        if len(vectors) <= self.exact_limit or not (choosing or self.method == "kmeans"):
            return None
        sample = vectors[systematic_sample(vectors, self.exact_limit, self.random_state)]
        # Fewer distinct vectors than clusters are nothing to start k-means from.
        poor = not choosing and few_distinct(sample, fewer_than=int(self.n_clusters)) is not None
        return None if poor else sample

    def _choose(self, vectors: FloatArray) -> Choice:
        if self.selection == "merge-ratio":
            return merge_ratio_k(vectors, self.max_clusters, self.selection_threshold)
        if self.method == "finch":
            return finch_k(vectors, self.max_clusters, margin=self.silhouette_margin)
        return silhouette_k(
            vectors,
            self.max_clusters,
            margin=self.silhouette_margin,
            repeats=self.silhouette_repeats,
        )

    def _group(self, vectors: FloatArray, sample: FloatArray | None, n_clusters: int) -> IntArray:
        distinct = few_distinct(vectors, fewer_than=n_clusters + 1)
        if distinct is not None:
            return distinct
        if n_clusters == 1:
            return np.zeros(len(vectors), dtype=np.intp)
        if self.method == "finch":
            return finch_labels(vectors, n_clusters)
        if self.method == "agglomerative":
            ward = AgglomerativeClustering(n_clusters=n_clusters, linkage="ward")
            labels: IntArray = ward.fit_predict(vectors)
            return labels
        if sample is None:
            return kmeans_labels(vectors, n_clusters, self.n_init, self.random_state)
        return kmeans_labels_from_sample(
            vectors, sample, n_clusters, self.n_init, self.random_state
        )
