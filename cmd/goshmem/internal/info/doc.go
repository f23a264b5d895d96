// Package info makes the printout of `goshmem info`: what a program started
// here and now would find, and why. It measures nothing and changes nothing;
// what it says of paths it has tried, with a small world in this process.
package info
