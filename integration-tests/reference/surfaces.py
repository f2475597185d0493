"""Reference values of ml/signal for surfaces: nilearn 0.14.1, scipy 1.17.1, numpy 2.4.6.

    python integration-tests/reference/surfaces.py

writes ml/signal/tests/fixtures/surfaces.

nilearn 0.14.1 takes its number of iterations from FreeSurfer's `mris_fwhm`, whose step is the plain mean of a vertex
and its six neighbours (it spreads by 6/7 of an edge's square), but its own step keeps half of the vertex (1/2): what
comes out has three quarters of the width that was asked for. Its steps are compared one by one; its width is measured here and
shown in the test beside ours.
"""

import json
import warnings
from pathlib import Path

import numpy as np
from nilearn.image import smooth_img
from nilearn.image.image import _mris_fwhm_to_niters
from nilearn.surface import InMemoryMesh, PolyMesh, SurfaceImage

warnings.filterwarnings("ignore")
OUT = Path(__file__).resolve().parents[2] / "ml/signal/tests/fixtures/surfaces"
SIDE = 48


def sphere(generator):
    """An icosahedron divided three times, blown to 30 mm and dented."""
    g = (1 + 5**0.5) / 2
    points = [(-1, g, 0), (1, g, 0), (-1, -g, 0), (1, -g, 0), (0, -1, g), (0, 1, g), (0, -1, -g), (0, 1, -g),
              (g, 0, -1), (g, 0, 1), (-g, 0, -1), (-g, 0, 1)]
    faces = [(0, 11, 5), (0, 5, 1), (0, 1, 7), (0, 7, 10), (0, 10, 11), (1, 5, 9), (5, 11, 4), (11, 10, 2), (10, 7, 6),
             (7, 1, 8), (3, 9, 4), (3, 4, 2), (3, 2, 6), (3, 6, 8), (3, 8, 9), (4, 9, 5), (2, 4, 11), (6, 2, 10),
             (8, 6, 7), (9, 8, 1)]
    points = [np.array(p, float) for p in points]
    for _ in range(3):
        middle, new = {}, []
        def between(a, b):
            if (min(a, b), max(a, b)) not in middle:
                middle[min(a, b), max(a, b)] = len(points)
                points.append((points[a] + points[b]) / 2)
            return middle[min(a, b), max(a, b)]
        for a, b, c in faces:
            x, y, z = between(a, b), between(b, c), between(c, a)
            new += [(a, x, z), (b, y, x), (c, z, y), (x, y, z)]
        faces = new
    points = np.array([p / np.linalg.norm(p) for p in points]) * generator.uniform(28, 32, (len(points), 1))
    return InMemoryMesh(points.astype("<f4"), np.array(faces, "<i4"))


def plane():
    """Equilateral triangles with edges of 1 mm."""
    v = np.arange(SIDE * SIDE)
    points = np.stack([v % SIDE + 0.5 * (v // SIDE), 0.75**0.5 * (v // SIDE), 0 * v], axis=1)
    v = v[(v % SIDE < SIDE - 1) & (v // SIDE < SIDE - 1)]
    faces = np.concatenate([np.stack([v, v + 1, v + SIDE], 1), np.stack([v + 1, v + SIDE + 1, v + SIDE], 1)])
    return InMemoryMesh(points.astype("<f4"), faces.astype("<i4"))


def image(mesh, data):
    return SurfaceImage(PolyMesh(left=mesh, right=mesh), {"left": data, "right": data.copy()})


def main():
    generator = np.random.default_rng(20241107)
    OUT.mkdir(parents=True, exist_ok=True)
    mesh = sphere(generator)
    data = generator.normal(1000, 20, (len(mesh.coordinates), 2)).astype("<f4")
    np.save(OUT / "vertices.npy", mesh.coordinates)
    np.save(OUT / "triangles.npy", mesh.faces)
    np.save(OUT / "data.npy", np.ascontiguousarray(data.T))
    cases, expected = [], []
    for fwhm in (8.0, 15.0, 30.0):
        run = image(mesh, data.astype(float))
        cases.append({"fwhm": fwhm, "steps": _mris_fwhm_to_niters(fwhm, run)[0]})
        expected.append(smooth_img(run, fwhm).data.parts["left"].T)
    np.save(OUT / "smoothed.npy", np.stack(expected).astype("<f8"))

    mesh, middle = plane(), SIDE * SIDE // 2 + SIDE // 2
    point = np.zeros(SIDE * SIDE)
    point[middle] = 1
    run = image(mesh, point)
    out = smooth_img(run, 6.0).data.parts["left"]
    across = mesh.coordinates[:, 0] - mesh.coordinates[middle, 0]
    width = np.sqrt((out * across**2).sum() / out.sum() * 8 * np.log(2))
    index = {"cases": cases, "plane": {"fwhm": 6.0, "steps": _mris_fwhm_to_niters(6.0, run)[0], "width": width}}
    (OUT / "index.json").write_text(json.dumps(index) + "\n")


main()
