// Goshmem starts programs of the runtime and tells what they will find.
//
//	goshmem run -n 4 prog arguments   # four PEs as processes
//	goshmem info                      # options, machine, paths
//	goshmem version
//	goshmem help run
//
// Commands are rows of one table (commands.go), one file each. What run does is
// in internal/launch.
package main
