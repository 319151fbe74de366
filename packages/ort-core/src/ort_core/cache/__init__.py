"""The content-addressed artefact cache: compiled partitions and optimized models, kept between processes."""
