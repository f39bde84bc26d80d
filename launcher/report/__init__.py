"""`ddprun report`: what the folders of a run have recorded, as one HTML file that needs no network."""
