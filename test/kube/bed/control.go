package bed

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// describeEtcd is etcd on a port of its own, without the fsync that a test doesn't need.
func (c *Cluster) describeEtcd() (*Service, error) {
	client, err := c.slot.port(0)
	if err != nil {
		return nil, err
	}
	peer, err := c.slot.port(client%100 + 1)
	if err != nil {
		return nil, err
	}
	clients, peers := fmt.Sprintf("http://127.0.0.1:%d", client), fmt.Sprintf("http://127.0.0.1:%d", peer)
	c.Etcd = c.service("etcd", func() error { return answers(httpClient(), clients+"/health") },
		filepath.Join(c.programs, "etcd"), "--name", "bed", "--data-dir", filepath.Join(c.Dir, "etcd"),
		"--listen-client-urls", clients, "--advertise-client-urls", clients,
		"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", "bed="+peers,
		"--unsafe-no-fsync", "--log-level", "warn")
	c.etcdURL = clients
	return c.Etcd, nil
}

// describeAPIServer is kube-apiserver on the port, with further flags.
func (c *Cluster) describeAPIServer(port int, flags []string) error {
	server, err := c.authority.server("kube-apiserver", []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}, net.IPv4(127, 0, 0, 1), c.serviceIP())
	if err != nil {
		return err
	}
	kubelets, err := c.authority.user("kube-apiserver-kubelet-client", "system:masters")
	if err != nil {
		return err
	}
	key, err := keyBlock(c.tokens)
	if err != nil {
		return err
	}
	err = errors.Join(c.write("ca.crt", c.authority.pem), c.write("tokens.key", key),
		c.write("apiserver.crt", server.cert), c.write("apiserver.key", server.key),
		c.write("kubelets.crt", kubelets.cert), c.write("kubelets.key", kubelets.key))
	if err != nil {
		return err
	}
	client, err := rest.HTTPClientFor(c.admin)
	if err != nil {
		return err
	}
	command := append([]string{filepath.Join(c.programs, "kube-apiserver"),
		"--etcd-servers=" + c.etcdURL,
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
		"--tls-cert-file=" + c.path("apiserver.crt"), "--tls-private-key-file=" + c.path("apiserver.key"),
		"--client-ca-file=" + c.path("ca.crt"),
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-signing-key-file=" + c.path("tokens.key"), "--service-account-key-file=" + c.path("tokens.key"),
		"--service-cluster-ip-range=" + c.slot.subnet(0), "--endpoint-reconciler-type=none",
		"--kubelet-client-certificate=" + c.path("kubelets.crt"), "--kubelet-client-key=" + c.path("kubelets.key"),
		"--kubelet-preferred-address-types=InternalIP"}, policies()...)
	c.APIServer = c.service("kube-apiserver", func() error { return answers(client, c.url+"/readyz") }, append(command, flags...)...)
	return nil
}

// policies are the flags that a version needs for admission policies that mutate: they are
// a beta in 1.34 and 1.35, which is off unless asked for, and on from 1.36 on.
func policies() []string {
	if v := Version(); v == "1.34" || v == "1.35" {
		return []string{"--feature-gates=MutatingAdmissionPolicy=true", "--runtime-config=admissionregistration.k8s.io/v1beta1=true"}
	}
	return nil
}

// StartControllers starts kube-controller-manager and kube-scheduler, unless they run: pods
// of Deployments, DaemonSets and Jobs are made and bound, and what lost its owner is
// removed. Node calls it.
func (c *Cluster) StartControllers(t testing.TB) {
	t.Helper()
	if c.Scheduler != nil {
		return
	}
	if err := c.describeControllers(); err != nil {
		t.Fatal(err)
	}
	c.ControllerManager.Start(t)
	c.Scheduler.Start(t)
}

func (c *Cluster) describeControllers() error {
	manager, err := c.program("kube-controller-manager", "system:kube-controller-manager",
		"--use-service-account-credentials=true", "--service-account-private-key-file="+c.path("tokens.key"), "--root-ca-file="+c.path("ca.crt"),
		"--node-monitor-period=2s")
	if err != nil {
		return err
	}
	scheduler, err := c.program("kube-scheduler", "system:kube-scheduler")
	if err != nil {
		return err
	}
	c.ControllerManager, c.Scheduler = manager, scheduler
	return nil
}

// program is one of the two programs that are users of the API.
func (c *Cluster) program(name, user string, flags ...string) (*Service, error) {
	port, err := c.slot.port(map[string]int{"kube-controller-manager": 10, "kube-scheduler": 15}[name])
	if err != nil {
		return nil, err
	}
	config, err := c.user(user)
	if err != nil {
		return nil, err
	}
	file, err := c.kubeconfig(name, config)
	if err != nil {
		return nil, err
	}
	client, err := rest.HTTPClientFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{Insecure: true}}) // its certificate is its own
	if err != nil {
		return nil, err
	}
	command := append([]string{filepath.Join(c.programs, name), "--kubeconfig=" + file, "--leader-elect=false",
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port), "--cert-dir=" + c.path(name)}, flags...)
	return c.service(name, func() error { return answers(client, fmt.Sprintf("https://127.0.0.1:%d/healthz", port)) }, command...), nil
}

func httpClient() *http.Client { return &http.Client{Timeout: 5 * time.Second} }

// answers tells why the address doesn't answer that all is well, nil where it does.
func answers(client *http.Client, url string) error {
	ctx, cancel := timeout(5 * time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, response.Status)
	}
	return nil
}

func (c *Cluster) path(name string) string { return filepath.Join(c.Dir, name) }

func (c *Cluster) write(name string, text []byte) error {
	return os.WriteFile(c.path(name), text, 0o600)
}
