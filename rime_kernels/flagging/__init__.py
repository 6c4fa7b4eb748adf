"""Interference found in amplitudes, on plain arrays: one integration at a time, or in time and frequency.

A waterfall is what one baseline and correlation has seen: amplitudes by time and channel.

running_median       background of spectra
noise_of_deviations  noise from the median of absolute deviations
simple_threshold     samples above a threshold
sum_threshold        runs of samples whose mean is above a threshold that falls with their number
rank_operator        flags extended by a share of the length that they have
flag_spectra         background, noise and threshold of each integration by itself
flag_waterfalls      background and thresholds in time and frequency, of one baseline and correlation each
OnlineAverage        visibilities averaged as they come, where flagged ones count if nothing else does
line_percentiles     percentiles of amplitudes without what is flagged
"""
