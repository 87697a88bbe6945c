"""What communication costs: links, all-reduce times, packs, overlap, and scaling over GPUs. No TensorFlow needed."""
