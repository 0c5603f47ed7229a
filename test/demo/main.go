// Command demo shows what Sluice does. It runs the same pods without and with the plugin and
// prints what their containers see. Everything that it starts is private, and is removed at the
// end.
//
// The runtime is a real containerd. If there can be none, or with -synthetic, it is the NRI
// module's runtime in this process, on a made-up machine of two sockets, with the same plugin
// process.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/sluice-dev/sluice/test/runtime"
	"github.com/sluice-dev/sluice/topology/sysfs"
)

func main() {
	synthetic := flag.Bool("synthetic", false, "use a made-up machine of two sockets instead of a real containerd")
	binary := flag.String("sluice", "bin/sluice", "the plugin")
	flag.Parse()
	if err := run(*synthetic, *binary); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(synthetic bool, binary string) (err error) {
	// A second Ctrl-C ends the demo at once; the next demo removes what is left.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)

	if binary, err = filepath.Abs(binary); err != nil {
		return err
	}
	if _, err := os.Stat(binary); err != nil {
		return fmt.Errorf("%w: run make build", err)
	}
	n, err := begin(synthetic, binary)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, n.close())
		if err == nil {
			fmt.Println("\nDone. Nothing is left behind.")
		}
	}()
	err = perform(ctx, n, os.Stdout)
	if ctx.Err() != nil {
		fmt.Println("\nInterrupted: everything is being removed.")
		return errors.New("interrupted")
	}
	return err
}

// begin starts the node that the demo runs on.
func begin(synthetic bool, binary string) (node, error) {
	if !synthetic {
		why := errors.Join(twoCores(), runtime.Unavailable(runtime.Options{}))
		if why == nil {
			fmt.Println("Starting a private containerd. The pods are real; it takes some seconds.")
			return startReal(binary)
		}
		fmt.Printf("No real containers here: %v.\n", why)
	}
	fmt.Printf("The pods are records in the NRI module's own runtime, on a made-up machine\n(%s). The plugin is the real one.\n", madeUp)
	return startSynthetic(binary)
}

// twoCores says why a pin doesn't fit on this machine, or returns nil if it does.
func twoCores() error {
	m, err := sysfs.Read(os.DirFS("/"))
	if err == nil && len(m.Cores) < 2 {
		err = errors.New("a pin leaves one core to the others, and this machine has only one")
	}
	return err
}
