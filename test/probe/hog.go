package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/test/probe/wire"
)

// hog runs threads that do one kind of work until SIGTERM, and counts it.
func hog(threads int, term <-chan os.Signal, work func(thread int, done *atomic.Uint64) error) error {
	if threads > wire.MaxThreads {
		return fmt.Errorf("%d threads: there are counters for %d", threads, wire.MaxThreads)
	}
	counters, err := shared(wire.Counters, threads*wire.CounterSlot)
	if err != nil {
		return err
	}
	runtime.GOMAXPROCS(threads + 1) // or goroutines would take turns on as many threads as there are CPUs
	failed := make(chan error, threads)
	for i := range threads {
		go func() { failed <- work(i, (*atomic.Uint64)(unsafe.Pointer(&counters[i*wire.CounterSlot]))) }()
	}
	select {
	case <-term:
		return nil
	case err := <-failed:
		return err
	}
}

// shared maps a new file of that size.
func shared(path string, size int) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := file.Truncate(int64(size)); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	memory, err := unix.Mmap(int(file.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	return memory, errors.Join(err, file.Close())
}

// spin counts rounds of 4096 multiplications, which take some microseconds each.
func spin(_ int, done *atomic.Uint64) error {
	for x := uint64(1); ; done.Add(1) {
		x = multiply(x)
	}
}

//go:noinline // else the compiler drops what nobody reads
func multiply(x uint64) uint64 {
	for range 4096 {
		x = x*6364136223846793005 + 1442695040888963407
	}
	return x
}

// stream counts the MiB read from and written to a buffer of its own. Each page has memory before the
// first copy: pages that were never written would all be read from one page of zeros. All buffers
// together exceed a last-level cache. Otherwise a thread that the scheduler leaves alone on its CPU would
// do several times the work of the others.
func stream(_ int, done *atomic.Uint64) error {
	const size = 256 << 20
	buffer, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		return err
	}
	for {
		for at := 0; at < size/2; at += 1 << 20 {
			copy(buffer[at:at+1<<20], buffer[size/2+at:])
			done.Add(2)
		}
	}
}

// files counts the MiB that were written to a file of the thread's own and read again.
func files(thread int, done *atomic.Uint64) error {
	const size = 64
	file, err := os.OpenFile(fmt.Sprintf("/file%d", thread), os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	chunk := make([]byte, 1<<20)
	for {
		for i := range size {
			if _, err := file.WriteAt(chunk, int64(i)<<20); err != nil {
				return err
			}
			done.Add(1)
		}
		for i := range size {
			if _, err := file.ReadAt(chunk, int64(i)<<20); err != nil && !errors.Is(err, io.EOF) {
				return err
			}
			done.Add(1)
		}
		// The file is truncated before all of it is written back, because the hog uses the page
		// cache rather than the disk.
		if err := file.Truncate(0); err != nil {
			return err
		}
	}
}

// fork counts the processes that were started and have ended.
func fork(_ int, done *atomic.Uint64) error {
	for ; ; done.Add(1) {
		if err := exec.Command("/proc/self/exe", "exit=0").Run(); err != nil {
			return err
		}
	}
}

// disk counts the MiB that were written to a file of the thread's own and are on the disk.
func disk(thread int, done *atomic.Uint64) error {
	const size = 64
	file, err := os.OpenFile(fmt.Sprintf("/file%d", thread), os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	chunk := make([]byte, 1<<20)
	for i := 0; ; i = (i + 1) % size {
		if _, err := file.WriteAt(chunk, int64(i)<<20); err != nil {
			return err
		}
		if err := unix.Fdatasync(int(file.Fd())); err != nil {
			return err
		}
		done.Add(1)
	}
}

// read counts the random blocks of /dev/disk that were read past the page cache.
func read(_ int, done *atomic.Uint64) error {
	const block = 4096
	device, err := unix.Open("/dev/disk", unix.O_RDONLY|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	size, err := unix.Seek(device, 0, io.SeekEnd)
	if err != nil {
		return err
	}
	buffer, err := unix.Mmap(-1, 0, block, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS) // aligned
	if err != nil {
		return err
	}
	for {
		if _, err := unix.Pread(device, buffer, rand.Int64N(size/block)*block); err != nil {
			return fmt.Errorf("reading /dev/disk: %w", err)
		}
		done.Add(1)
	}
}

// fill leaves that many bytes of clean page cache, which can be reclaimed without waiting for the
// disk.
func fill(size int64) error {
	file, err := os.OpenFile("/filled", os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	chunk := make([]byte, 1<<20)
	for at := int64(0); at < size; at += int64(len(chunk)) {
		if _, err := file.WriteAt(chunk, at); err != nil {
			return errors.Join(err, file.Close())
		}
	}
	return errors.Join(file.Sync(), file.Close())
}
