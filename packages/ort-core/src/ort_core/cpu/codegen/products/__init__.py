"""Matrix products: packing, microkernels, epilogues."""
