"""What gridders share on a GPU: transforms, transfers, planes of images, layers and batches of work."""
