package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ErrSwap says that the machine has swap of its own, which is left alone, or can't have any.
var ErrSwap = errors.New("no swap can be added")

const page = 4096

// SwapOn gives the machine a swap area of that many bytes, and returns how to take it away. The
// area is a file, or a block device that holds nothing else.
func SwapOn(path string, bytes int64) (off func() error, err error) {
	text, err := os.ReadFile("/proc/swaps")
	if err != nil {
		return nil, fmt.Errorf("%w: this kernel has none: %w", ErrSwap, err)
	}
	if strings.Count(string(text), "\n") > 1 {
		return nil, fmt.Errorf("%w: this machine has swap of its own", ErrSwap)
	}
	if err := format(path, bytes); err != nil {
		return nil, err
	}
	name, err := unix.BytePtrFromString(path)
	if err != nil {
		return nil, err
	}
	if _, _, errno := unix.Syscall(unix.SYS_SWAPON, uintptr(unsafe.Pointer(name)), 0, 0); errno != 0 {
		return nil, fmt.Errorf("%w: swapon of %s: %w", ErrSwap, path, errno)
	}
	return func() error {
		if _, _, errno := unix.Syscall(unix.SYS_SWAPOFF, uintptr(unsafe.Pointer(name)), 0, 0); errno != 0 {
			return fmt.Errorf("swapoff of %s: %w", path, errno)
		}
		return nil
	}, nil
}

// format writes struct swap_header of include/linux/swap.h: version 1 at byte 1024, the last page,
// and the mark at the end of the first page. A file is written whole, because a swap file must not
// have holes.
func format(path string, bytes int64) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	header := make([]byte, page)
	binary.NativeEndian.PutUint32(header[1024:], 1)
	binary.NativeEndian.PutUint32(header[1028:], uint32(bytes/page-1))
	copy(header[page-10:], "SWAPSPACE2")
	if _, err := f.Write(header); err != nil {
		return err
	}
	if of, err := f.Stat(); err != nil || !of.Mode().IsRegular() {
		return errors.Join(err, f.Sync())
	}
	empty := make([]byte, 1<<20)
	for at := int64(page); at < bytes; at += int64(len(empty)) {
		if _, err := f.WriteAt(empty[:min(int64(len(empty)), bytes-at)], at); err != nil {
			return err
		}
	}
	debug.FreeOSMemory()
	return f.Sync()
}

// ZRAM makes a block device of that many bytes in compressed memory, and returns how to remove it.
func ZRAM(bytes int64) (path string, remove func() error, err error) {
	const control = "/sys/class/zram-control/"
	text, err := os.ReadFile(control + "hot_add")
	if err != nil {
		return "", nil, fmt.Errorf("%w: this kernel has no zram: %w", ErrSwap, err)
	}
	number := strings.TrimSpace(string(text))
	remove = func() error { return os.WriteFile(control+"hot_remove", []byte(number), 0) }
	if err := os.WriteFile("/sys/block/zram"+number+"/disksize", []byte(strconv.FormatInt(bytes, 10)), 0); err != nil {
		return "", nil, errors.Join(err, remove())
	}
	return "/dev/zram" + number, remove, nil
}
