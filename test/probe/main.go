// Probe is the program of every container of the tests: a static binary that
// does what its arguments say, one after the other.
//
//	first      print one JSON line of what this process sees (sight.First)
//	touch=N    take N MiB of memory and write to every page of it
//	ramp=N     the same at 256 MiB a second
//	sleep      wait for SIGTERM
//	burn[=N]   keep N CPUs busy (1) until SIGTERM
//	pulse=N    keep one CPU busy for N ms of each 300 until SIGTERM
//	toggle     keep one CPU busy from SIGUSR1 to SIGUSR2, until SIGTERM
//	cache=N    read N MiB of the block device /dev/disk
//	exit=N     exit with status N
//	metrics=N  serve this process' metrics for Prometheus on port N, while the next arguments run
//	serve=N    answer the requests of package wire with N threads until SIGTERM
//	spin=N     N threads that compute, and count it in wire.Counters, until SIGTERM
//	stream=N   the same of N threads that copy memory
//	files=N    the same of N threads that write and read files
//	read=N     the same of N threads that read random blocks of the block device /dev/disk
//	fill=N     write N MiB of a file, to disk and to the page cache
//	echo=N     send back what comes to TCP port N, while the next arguments run
//	sink=N     read what comes to TCP port N, and count its bytes in wire.Counters, until SIGTERM
//	send=N@A   send to the TCP address A over N connections as fast as it goes, until SIGTERM
//
// On the host itself it runs another program as the same process:
//
//	under FILE PROGRAM ARGUMENT...   which finds FILE in place of /proc/stat
package main

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/test/probe/sight"
)

func main() {
	if len(os.Args) > 3 && os.Args[1] == "under" {
		fmt.Fprintf(os.Stderr, "probe under: %v\n", under(os.Args[2], os.Args[3:]))
		os.Exit(2)
	}
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	orders := make(chan os.Signal, 8) // set up before the first line is printed, because whoever reads it may send a signal
	signal.Notify(orders, syscall.SIGUSR1, syscall.SIGUSR2)
	for _, arg := range os.Args[1:] {
		if err := run(arg, term, orders); err != nil {
			fmt.Fprintf(os.Stderr, "probe %s: %v\n", arg, err)
			os.Exit(2)
		}
	}
}

func run(arg string, term, orders <-chan os.Signal) error {
	verb, value, given := strings.Cut(arg, "=")
	value, address, _ := strings.Cut(value, "@")
	n := 1
	if given {
		var err error
		if n, err = strconv.Atoi(value); err != nil {
			return err
		}
	}
	switch verb {
	case "first":
		first, err := sight.Read()
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(first)
	case "touch":
		return touch(n<<20, 0)
	case "ramp":
		return touch(n<<20, time.Second/256)
	case "sleep":
		<-term
	case "burn":
		var stop atomic.Bool
		for range n {
			go burn(&stop)
		}
		<-term
		stop.Store(true)
	case "pulse":
		for tick := time.NewTicker(300 * time.Millisecond); ; {
			select {
			case <-term:
				return nil
			case now := <-tick.C:
				for time.Since(now) < time.Duration(n)*time.Millisecond {
				}
			}
		}
	case "toggle":
		toggle(term, orders)
	case "cache":
		return cache(int64(n) << 20)
	case "exit":
		os.Exit(n)
	case "metrics":
		return metrics(n)
	case "serve":
		return serve(n, term)
	case "spin":
		return hog(n, term, spin)
	case "stream":
		return hog(n, term, stream)
	case "files":
		return hog(n, term, files)
	case "fork":
		return hog(n, term, fork)
	case "disk":
		return hog(n, term, disk)
	case "read":
		return hog(n, term, read)
	case "fill":
		return fill(int64(n) << 20)
	case "echo":
		return echo(n)
	case "sink":
		return sink(n, term)
	case "send":
		send(address, n, term)
	default:
		return fmt.Errorf("not one of first, touch=N, ramp=N, sleep, burn[=N], pulse=N, toggle, cache=N, exit=N, metrics=N, serve=N, spin=N, stream=N, files=N, fork=N, disk=N, read=N, fill=N, echo=N, sink=N, send=N@ADDRESS")
	}
	return nil
}

// touch allocates memory that remains mapped until this process ends. Each MiB takes at least that
// long. A third of each page is random, so that it can be compressed to about a third.
func touch(size int, each time.Duration) error {
	random := make([]byte, os.Getpagesize()/3)
	_, _ = rand.Read(random) // never fails
	began := time.Now()
	memory, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANONYMOUS)
	for i := 0; i < len(memory); i += os.Getpagesize() {
		copy(memory[i:], random)
		if i%(1<<20) == 0 && each > 0 {
			time.Sleep(time.Until(began.Add(time.Duration(i>>20) * each)))
		}
	}
	return err
}

// cache leaves what it has read in the page cache, charged to this process' cgroup. The disk stays
// open, because the kernel drops the page cache of a block device when the last process closes it
// (blkdev_flush_mapping).
func cache(size int64) error {
	disk, err := unix.Open("/dev/disk", unix.O_RDONLY|unix.O_CLOEXEC, 0) // the garbage collector would close an os.File
	if err != nil {
		return err
	}
	chunk := make([]byte, 1<<20)
	for at := int64(0); at < size; at += int64(len(chunk)) {
		n, err := unix.Pread(disk, chunk, at)
		if err == nil && n < len(chunk) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return fmt.Errorf("reading /dev/disk at %d: %w", at, err)
		}
	}
	return nil
}

func burn(stop *atomic.Bool) {
	for !stop.Load() {
	}
}
