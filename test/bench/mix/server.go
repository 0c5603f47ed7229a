package main

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sluice-dev/sluice/test/bench/mix/load"
	"github.com/sluice-dev/sluice/test/runtime"
)

// server is a real server, from Debian, in place of the probe's service.
type server struct {
	name        string
	command     []string
	files       map[string]string // texts, by name in the folder /service; $PORT is where it listens at 127.0.0.1
	protocol    load.Protocol
	connections int
	busiest     int // maximum load in CPUs; 0 for no limit
}

// probeService names the probe's own service.
const probeService = "probe"

// servers lists the real servers.
func servers() []server {
	return []server{
		{
			name:    "nginx",
			command: []string{"/usr/sbin/nginx", "-c", "/service/nginx.conf"},
			files: map[string]string{
				"page": page(48 << 10),
				"nginx.conf": `daemon off; user root; worker_processes auto; pid /service/pid; error_log stderr;
worker_rlimit_nofile 4096; events { worker_connections 4096; }
http {
	access_log off; default_type text/plain; keepalive_timeout 1h; keepalive_requests 1000000000;
	gzip on; gzip_comp_level 6; gzip_types text/plain;
	client_body_temp_path /service/body; proxy_temp_path /service/proxy; fastcgi_temp_path /service/fastcgi;
	uwsgi_temp_path /service/uwsgi; scgi_temp_path /service/scgi;
	server { listen 127.0.0.1:$PORT reuseport; root /service; location = /worker { return 200 $pid; } }
}
`,
			},
			// On one socket of all workers, whichever is awake would take all connections. With a socket for
			// each worker, the kernel chooses by a hash.
			protocol: load.HTTP("/page", "/worker"), connections: 256,
		},
		{
			name:     "redis",
			command:  []string{"/usr/bin/redis-server", "/service/redis.conf"},
			files:    map[string]string{"redis.conf": "bind 127.0.0.1\nport $PORT\nsave \"\"\ndir /service\n"},
			protocol: load.Redis(2000), connections: 64, busiest: 1, // one thread answers all requests
		},
	}
}

// most returns the maximum load that the benchmark puts on the server, in percent of that many CPUs.
func (s *server) most(cpus int) int {
	if s == nil || s.busiest == 0 {
		return mostLoad
	}
	return min(mostLoad, mostLoad*s.busiest/cpus)
}

// String returns the server's name.
func (s *server) String() string {
	if s == nil {
		return probeService
	}
	return s.name
}

// freePort returns a TCP port on which no program listens.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// page returns a text that gzip makes about three times smaller, like one of the Web.
func page(size int) string {
	words := strings.Fields("node pod service batch memory pressure scheduler cgroup latency quota share request limit cache kernel thread wait run idle weight")
	var text strings.Builder
	for x := uint64(1); text.Len() < size; x = x*6364136223846793005 + 1442695040888963407 {
		fmt.Fprintf(&text, "<p class=%q>%s %s %x</p>\n", words[x>>33%uint64(len(words))], words[x>>40%uint64(len(words))], words[x>>48%uint64(len(words))], x>>44)
	}
	return text.String()[:size]
}

// container returns the server's container, whose programs are in a folder that `make
// bin/tools/servers` fills, and whose own files go to another one.
func (s *server) container(programs, own string, port int) (runtime.ContainerSpec, error) {
	spec := runtime.ContainerSpec{Name: "c", Command: s.command}
	if _, err := os.Stat(filepath.Join(programs, s.command[0])); err != nil {
		return spec, fmt.Errorf("%s is missing, 'make bin/tools/servers' gets it: %w", s.name, err)
	}
	programs, err := filepath.Abs(programs)
	errs := []error{err, os.MkdirAll(own, 0o755)}
	texts := map[string]string{"passwd": "root:x:0:0::/:/bin/sh\n", "group": "root:x:0:\n"}
	maps.Copy(texts, s.files)
	for name, text := range texts {
		errs = append(errs, os.WriteFile(filepath.Join(own, name), []byte(strings.ReplaceAll(text, "$PORT", strconv.Itoa(port))), 0o644))
	}
	for _, name := range []string{"usr", "lib", "lib64"} {
		if _, err := os.Stat(filepath.Join(programs, name)); err == nil { // lib64 is amd64's
			spec.Mounts = append(spec.Mounts, &cri.Mount{HostPath: filepath.Join(programs, name), ContainerPath: "/" + name, Readonly: true})
		}
	}
	for _, name := range []string{"passwd", "group"} {
		spec.Mounts = append(spec.Mounts, &cri.Mount{HostPath: filepath.Join(own, name), ContainerPath: "/etc/" + name, Readonly: true})
	}
	spec.Mounts = append(spec.Mounts, &cri.Mount{HostPath: own, ContainerPath: "/service"})
	return spec, errors.Join(errs...)
}
