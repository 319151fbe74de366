"""The content-addressed artefact cache: compiled partitions and optimised models, kept between processes."""
