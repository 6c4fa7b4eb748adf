"""The physics of one number at a time, compiled for CPU and GPU alike: phase, brightness, envelope, beam."""
