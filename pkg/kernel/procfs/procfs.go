// Package procfs reads measurements of a machine from /proc and /sys/devices/system/node. It
// keeps files open and reads them with pread, without allocation.
package procfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrUnsupported says that this kernel doesn't have a file, or that the feature is switched
// off.
var ErrUnsupported = errors.New("not supported here")

// FS reads the kernel's files below a root folder. It is not safe for concurrent use.
type FS struct {
	root *os.Root
	proc *os.File // the folder /proc
	text []byte   // buffer with the text of the last read

	stat, meminfo, vmstat, zoneinfo, loadavg, swaps file
	cpu, memory, io                                 file // the files in /proc/pressure

	zram      []file // statistics of the swap areas in compressed memory
	otherSwap bool   // there are swap areas on disks
	nodes     []node
	disks     []*os.File // folders with pods' data
}

// file is opened by its first read, and then stays open.
type file struct {
	name string
	open *os.File
}

// Open opens the folder that holds the host's /proc and /sys, "/" on the host itself.
func Open(hostRoot string) (*FS, error) {
	root, err := os.OpenRoot(hostRoot)
	if err != nil {
		return nil, fmt.Errorf("seeing what the node does: %w", err)
	}
	proc, err := root.OpenFile("proc", os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		root.Close()
		return nil, fmt.Errorf("seeing what the node does: %w; mount the host's /proc below %s", err, hostRoot)
	}
	f := &FS{
		root: root, proc: proc, text: make([]byte, 8192),
		stat: file{name: "proc/stat"}, meminfo: file{name: "proc/meminfo"}, vmstat: file{name: "proc/vmstat"}, zoneinfo: file{name: "proc/zoneinfo"}, loadavg: file{name: "proc/loadavg"}, swaps: file{name: "proc/swaps"},
		cpu: file{name: "proc/pressure/cpu"}, memory: file{name: "proc/pressure/memory"}, io: file{name: "proc/pressure/io"},
	}
	return f, nil
}

// Close closes all open files.
func (f *FS) Close() error {
	for _, one := range []*file{&f.stat, &f.meminfo, &f.vmstat, &f.zoneinfo, &f.loadavg, &f.swaps, &f.cpu, &f.memory, &f.io} {
		one.close()
	}
	f.forgetNodes()
	f.forgetDisks()
	f.forgetZRAM()
	return errors.Join(f.proc.Close(), f.root.Close())
}

func (one *file) close() {
	if one.open != nil {
		one.open.Close()
		one.open = nil
	}
}

// read returns the text of a file, which is valid until the next read. If until isn't nil, the
// text may end anywhere after its first occurrence.
func (f *FS) read(one *file, until []byte) ([]byte, error) {
	if one.open == nil {
		open, err := f.root.Open(one.name)
		if err != nil {
			return nil, kind(err)
		}
		one.open = open
	}
	for {
		n, err := one.open.ReadAt(f.text, 0)
		if err != nil && !errors.Is(err, io.EOF) {
			one.close()
			return nil, kind(err)
		}
		// The kernel generates the text for each read at offset 0, and returns as much as fits.
		if n < len(f.text) || until != nil && bytes.Contains(f.text, until) {
			return f.text[:n], nil
		}
		f.text = make([]byte, 2*len(f.text))
	}
}

// kind returns ErrUnsupported for a feature that the kernel doesn't have. EOPNOTSUPP says that
// PSI is built in but switched off.
func kind(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	return err
}

// number returns the number at the start of a text, after blanks and clamped to the largest
// int64, and the rest of the text.
func number(text []byte) (n int64, rest []byte) {
	for len(text) > 0 && text[0] == ' ' {
		text = text[1:]
	}
	const most = 1<<63 - 1
	for len(text) > 0 && text[0] >= '0' && text[0] <= '9' {
		if n > (most-9)/10 {
			n = (most - 9) / 10
		}
		n = n*10 + int64(text[0]-'0')
		text = text[1:]
	}
	return n, text
}

// cut splits a text after its first line.
func cut(text []byte) (line, rest []byte) {
	line, rest, _ = bytes.Cut(text, []byte("\n"))
	return line, rest
}
