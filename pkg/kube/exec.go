package kube

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/sluice-dev/sluice/pkg/cluster/fleet"
)

// maxPrinted bounds what is kept of each of a command's streams. The status of a node with hundreds
// of pods has about a megabyte.
const maxPrinted = 32 << 20

// Printed is what a command printed in a container, and how it ended.
type Printed struct {
	Out, Errs []byte
	Exit      int // exit status
}

// ErrNoPod is of a pod that does not exist.
var ErrNoPod = errors.New("the pod does not exist")

// Exec runs a command in a container of a pod, without a shell, and returns what it printed. That the
// command failed is no error.
func (f *Fleet) Exec(ctx context.Context, pod *fleet.Pod, container string, command []string) (*Printed, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	request := f.rest.Get().Namespace(pod.Namespace).Resource("pods").Name(pod.Name).SubResource("exec").
		Param("container", container).Param("stdout", "true").Param("stderr", "true")
	for _, word := range command {
		request.Param("command", word)
	}
	executor, err := newExecutor(f.config, request)
	if err != nil {
		return nil, err
	}
	// client-go would log a broken connection to standard error, beside the error that it returns.
	quiet := logr.NewContext(ctx, logr.Discard())
	out, errs := &firstBytes{full: cancel}, &firstBytes{full: cancel}
	err = executor.StreamWithContext(quiet, remotecommand.StreamOptions{Stdout: out, Stderr: errs})
	if out.overflows || errs.overflows {
		return nil, fmt.Errorf("the command printed more than %d MiB, which is more than is read", maxPrinted>>20)
	}
	printed := &Printed{Out: out.kept.Bytes(), Errs: errs.kept.Bytes()}
	if exit, ok := errors.AsType[exec.CodeExitError](err); ok {
		printed.Exit, err = exit.Code, nil
	}
	switch {
	case err == nil:
		return printed, nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("the command has not ended: %w", context.Cause(ctx))
	case strings.Contains(err.Error(), "forbidden"): // it comes as text
		return nil, fmt.Errorf("the command could not be run: %w (ask for the right to create pods/exec in namespace %s)", err, pod.Namespace)
	}
	return nil, fmt.Errorf("the command could not be run: %w", err)
}

// newExecutor returns what runs a command over a WebSocket, and over SPDY if the API server, a proxy
// before it or the user's rights refuse that: before Kubernetes 1.35, a WebSocket needs the right to
// get pods/exec, and SPDY the right to create it, which many roles have alone.
func newExecutor(config *rest.Config, request *rest.Request) (remotecommand.Executor, error) {
	spdy, err := remotecommand.NewSPDYExecutor(config, http.MethodPost, request.URL())
	if err != nil {
		return nil, err
	}
	socket, err := remotecommand.NewWebSocketExecutor(config, http.MethodGet, request.URL().String())
	if err != nil {
		return nil, err
	}
	return remotecommand.NewFallbackExecutor(socket, spdy, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
}

// firstBytes keeps the beginning of what is written, and says when it is full.
type firstBytes struct {
	kept      bytes.Buffer
	full      func()
	overflows bool
}

func (b *firstBytes) Write(p []byte) (int, error) {
	if room := maxPrinted - b.kept.Len(); len(p) > room {
		if !b.overflows {
			b.overflows = true
			b.full()
		}
		b.kept.Write(p[:room])
		return len(p), nil
	}
	return b.kept.Write(p)
}

// NodeOf returns the name of the node on which a pod runs, "" if it waits for one.
func (f *Fleet) NodeOf(ctx context.Context, namespace, name string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, fleetTime)
	defer cancel()
	var pod corev1.Pod
	err := f.rest.Get().Namespace(namespace).Resource("pods").Name(name).Do(ctx).Into(&pod)
	switch {
	case apierrors.IsNotFound(err):
		return "", fmt.Errorf("pod %s/%s: %w", namespace, name, ErrNoPod)
	case apierrors.IsForbidden(err):
		return "", fmt.Errorf("pod %s/%s: %w (ask for the right to get pods in namespace %s)", namespace, name, err, namespace)
	case err != nil:
		return "", fmt.Errorf("pod %s/%s: %w", namespace, name, err)
	}
	return pod.Spec.NodeName, nil
}
