//! What an array of a GIFTI file means.

/// The intent of an array; those that no one here uses keep their name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Intent {
    /// One time point of a series.
    TimeSeries,
    /// Coordinates of a surface's vertices, `[vertices, 3]`.
    PointSet,
    /// Vertices of a surface's triangles, `[triangles, 3]`.
    Triangle,
    /// A number per vertex that says something of its shape, such as curvature.
    Shape,
    /// A key of the label table per vertex.
    Label,
    /// Anything.
    None,
    /// Another intent of NIfTI, by its name, such as `NIFTI_INTENT_ZSCORE`.
    Other(String),
}

impl Intent {
    pub(super) fn from_name(name: &str) -> Self {
        match name {
            "NIFTI_INTENT_TIME_SERIES" => Self::TimeSeries,
            "NIFTI_INTENT_POINTSET" => Self::PointSet,
            "NIFTI_INTENT_TRIANGLE" => Self::Triangle,
            "NIFTI_INTENT_SHAPE" => Self::Shape,
            "NIFTI_INTENT_LABEL" => Self::Label,
            "NIFTI_INTENT_NONE" => Self::None,
            other => Self::Other(other.to_owned()),
        }
    }

    /// The name that files carry.
    pub fn name(&self) -> &str {
        match self {
            Self::TimeSeries => "NIFTI_INTENT_TIME_SERIES",
            Self::PointSet => "NIFTI_INTENT_POINTSET",
            Self::Triangle => "NIFTI_INTENT_TRIANGLE",
            Self::Shape => "NIFTI_INTENT_SHAPE",
            Self::Label => "NIFTI_INTENT_LABEL",
            Self::None => "NIFTI_INTENT_NONE",
            Self::Other(name) => name,
        }
    }
}
