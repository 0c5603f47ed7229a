package procfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Trigger is pressure of the whole machine that wakes: so much waiting in so long.
type Trigger struct {
	Resource      string // "cpu", "memory" or "io"
	Full          bool   // of all tasks at once, not of some
	Stall, Window time.Duration
}

// String is what the kernel takes: "some 150000 1000000".
func (t Trigger) String() string {
	who := "some"
	if t.Full {
		who = "full"
	}
	return fmt.Sprintf("%s %d %d", who, t.Stall.Microseconds(), t.Window.Microseconds())
}

// step is what the window is a multiple of without CAP_SYS_RESOURCE (Linux 6.5,
// psi_trigger_create).
const step = 2 * time.Second

// longer is a trigger for the same share of the next window that any process may have.
func (t Trigger) longer() Trigger {
	window := (t.Window + step - 1) / step * step
	t.Stall = time.Duration(float64(t.Stall) * float64(window) / float64(t.Window))
	t.Window = window
	return t
}

// Watch is triggers in the kernel.
type Watch struct {
	armed []Trigger
	files []*os.File
}

// Arm sets triggers. The error says which the kernel refused; the watch has the others,
// and is nil where there are none.
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
		// With the 0 at its end, as psi_write cuts the last byte off.
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

// Armed are the triggers as the kernel has them.
func (w *Watch) Armed() []Trigger { return w.armed }

// Run calls wake each time that a trigger fires, at most once in its window, until
// the context ends. Then the triggers are gone.
func (w *Watch) Run(ctx context.Context, wake func(Trigger)) error {
	defer w.close()
	end, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("waiting for pressure: %w; it is noticed at the next look instead", err)
	}
	defer unix.Close(end) //nolint:errcheck // an event
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		unix.Write(end, []byte{1, 0, 0, 0, 0, 0, 0, 0}) //nolint:errcheck // it can't be full
		close(ended)
	})
	defer func() {
		if !stop() {
			<-ended // not after end is closed
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
				fds[i+1].Fd = -1 // the kernel took the trigger away
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
