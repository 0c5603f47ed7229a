package procfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Trigger is a PSI trigger on the pressure of the whole machine: it fires when tasks have
// waited for some time within a window.
type Trigger struct {
	Resource      string // "cpu", "memory" or "io"
	Full          bool   // count the time in which all tasks waited at once, instead of some task
	Stall, Window time.Duration
}

// String returns the trigger in the kernel's format: "some 150000 1000000".
func (t Trigger) String() string {
	who := "some"
	if t.Full {
		who = "full"
	}
	return fmt.Sprintf("%s %d %d", who, t.Stall.Microseconds(), t.Window.Microseconds())
}

// step is the unit of the window for processes without CAP_SYS_RESOURCE (Linux 6.5,
// psi_trigger_create).
const step = 2 * time.Second

// longer returns a trigger for the same share of the next longer window that any process may
// use.
func (t Trigger) longer() Trigger {
	window := (t.Window + step - 1) / step * step
	t.Stall = time.Duration(float64(t.Stall) * float64(window) / float64(t.Window))
	t.Window = window
	return t
}

// Watch is a set of triggers that the kernel has accepted.
type Watch struct {
	armed []Trigger
	files []*os.File
}

// Arm registers triggers with the kernel. The error names those that the kernel refused; the
// watch has the others, and is nil if there are none.
func (f *FS) Arm(triggers ...Trigger) (*Watch, error) {
	w := &Watch{}
	var errs []error
	for _, t := range triggers {
		file, as, err := f.arm(t)
		if err != nil {
			errs = append(errs, fmt.Errorf("waking on %s pressure by %q: %w; it is noticed at the next look instead", t.Resource, t, err))
			continue
		}
		w.files, w.armed = append(w.files, file), append(w.armed, as)
	}
	if len(w.files) == 0 {
		w = nil
	}
	return w, errors.Join(errs...)
}

func (f *FS) arm(t Trigger) (*os.File, Trigger, error) {
	file, err := f.root.OpenFile("proc/pressure/"+t.Resource, os.O_RDWR, 0)
	if err != nil {
		return nil, t, kind(err)
	}
	for _, as := range []Trigger{t, t.longer()} {
		// The text includes a final 0 byte, because psi_write drops the last byte.
		if _, err = file.Write(append([]byte(as.String()), 0)); err == nil {
			return file, as, nil
		}
		if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EPERM) {
			break
		}
	}
	file.Close()
	return nil, t, kind(err)
}

// Armed returns the triggers as registered with the kernel.
func (w *Watch) Armed() []Trigger { return w.armed }

// Run calls wake each time a trigger fires, at most once per window, until the context ends. It
// then removes the triggers.
func (w *Watch) Run(ctx context.Context, wake func(Trigger)) error {
	defer w.close()
	end, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("waiting for pressure: %w; it is noticed at the next look instead", err)
	}
	defer unix.Close(end) //nolint:errcheck // closing an eventfd loses no data
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		unix.Write(end, []byte{1, 0, 0, 0, 0, 0, 0, 0}) //nolint:errcheck // the counter of an eventfd can't overflow here
		close(ended)
	})
	defer func() {
		if !stop() {
			<-ended // the goroutine must not write to end after it is closed
		}
	}()
	fds := []unix.PollFd{{Fd: int32(end), Events: unix.POLLIN}}
	for _, f := range w.files {
		fds = append(fds, unix.PollFd{Fd: int32(f.Fd()), Events: unix.POLLPRI})
	}
	for ctx.Err() == nil {
		if _, err := unix.Poll(fds, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("waiting for pressure: %w; it is noticed at the next look instead", err)
		}
		for i := range w.files {
			switch got := fds[i+1].Revents; {
			case got&unix.POLLERR != 0:
				fds[i+1].Fd = -1 // the kernel has removed the trigger
			case got&unix.POLLPRI != 0:
				wake(w.armed[i])
			}
			fds[i+1].Revents = 0
		}
	}
	return nil
}

func (w *Watch) close() {
	for _, f := range w.files {
		f.Close()
	}
}
