package admission

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	nodeannotation "github.com/sluice-dev/sluice/pkg/workload/annotation"
	"github.com/sluice-dev/sluice/pkg/workload/manifest"
	"github.com/sluice-dev/sluice/test/kube/bed"
)

// apply creates the object of a manifest in a dry run.
func apply(t *testing.T, cluster *bed.Cluster, text string) error {
	t.Helper()
	objects, err := bed.Objects(text)
	if err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(cluster.Admin())
	if err != nil {
		t.Fatal(err)
	}
	o := objects[0]
	kind := o.GroupVersionKind()
	resource := client.Resource(schema.GroupVersionResource{Group: kind.Group, Version: kind.Version, Resource: strings.ToLower(kind.Kind) + "s"})
	_, err = resource.Namespace("default").Create(t.Context(), o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// templates are manifests of a pod with these annotations and containers: alone, and in workloads.
func templates(annotations, containers string) map[string]string {
	pod := "metadata: {labels: {app: w}, annotations: " + annotations + "}, spec: {containers: " + containers + "}"
	never := strings.Replace(pod, "spec: {", "spec: {restartPolicy: Never, ", 1)
	return map[string]string{
		"Pod":        "{apiVersion: v1, kind: Pod, metadata: {name: w, annotations: " + annotations + "}, spec: {containers: " + containers + "}}",
		"Deployment": "{apiVersion: apps/v1, kind: Deployment, metadata: {name: w}, spec: {selector: {matchLabels: {app: w}}, template: {" + pod + "}}}",
		"Job":        "{apiVersion: batch/v1, kind: Job, metadata: {name: w}, spec: {template: {" + never + "}}}",
		"CronJob":    "{apiVersion: batch/v1, kind: CronJob, metadata: {name: w}, spec: {schedule: '0 3 * * *', jobTemplate: {spec: {template: {" + never + "}}}}}",
	}
}

// onNode is what a node says of the pod of a manifest; "" if it starts.
func onNode(t *testing.T, text string) string {
	t.Helper()
	pods, err := manifest.Parse([]byte(text), 0)
	if err != nil {
		t.Fatal(err)
	}
	rules := nodeannotation.Rules{}
	for i := range pods[0].Containers {
		c := &pods[0].Containers[i]
		if _, _, err := rules.Request(nodeannotation.Facts{ThreadsPerCore: 1, Granted: c.Granted}, pods[0].Sandbox, c); err != nil {
			first, _, _ := strings.Cut(err.Error(), "\n")
			return first
		}
	}
	return ""
}

// TestRefusedAsByTheNode: at apply time, in a pod and in workloads, a policy refuses what the node would refuse when
// the pod starts, with the same words, and nothing else.
func TestRefusedAsByTheNode(t *testing.T) {
	cluster := start(t)
	cluster.Apply(t, policy(t, "parameters.yaml")+"---\n"+policy(t, "annotations.yaml")+"---\n"+policy(t, "pinned.yaml"))
	const whole = "[{name: main, image: x, resources: {limits: {cpu: 2, memory: 1Gi}}}]"
	const half = "[{name: main, image: x, resources: {limits: {cpu: 500m, memory: 1Gi}}}]"
	const both = "[{name: main, image: x, resources: {limits: {cpu: 2, memory: 1Gi}}}, {name: proxy, image: x, resources: {limits: {cpu: 1500m, memory: 1Gi}}}]"
	bed.Await(t, "the policies act", func() error {
		if apply(t, cluster, templates("{xyzzy.sluice.dev: a}", half)["Pod"]) == nil || apply(t, cluster, templates("{class.sluice.dev: LSR}", half)["Pod"]) == nil {
			return bed.ErrNotYet
		}
		return nil
	})
	for name, test := range map[string]struct {
		annotations, containers string
		refused                 bool
	}{
		"no annotation":         {"{}", half, false},
		"of others":             {"{example.com/a: b, notsluice.dev: c}", half, false},
		"every kind of key":     {"{cpu-burst.sluice.dev: '50%', evict.sluice.dev/pod: '3', io.sluice.dev/container.main: '{weight: 20}'}", half, false},
		"unknown key":           {"{xyzzy.sluice.dev: a}", half, true},
		"unknown key, scoped":   {"{xyzzy.sluice.dev/pod: a}", half, true},
		"unknown key, empty":    {"{xyzzy.sluice.dev: ''}", half, true},
		"unknown scope, empty":  {"{class.sluice.dev/main: ''}", half, true},
		"empty class":           {"{class.sluice.dev: ''}", half, true},
		"key of config":         {"{weight.sluice.dev: '3'}", half, true},
		"unknown scope":         {"{class.sluice.dev/main: LS}", half, true},
		"unknown class":         {"{class.sluice.dev: gold}", half, true},
		"unknown class, scoped": {"{class.sluice.dev/container.main: lsr}", half, true},
		"the domain itself":     {"{sluice.dev: a}", half, true},
		"LSR":                   {"{class.sluice.dev: LSR}", whole, false},
		"LSE with a space":      {"{class.sluice.dev: ' LSE'}", whole, false},
		"LSR of half a CPU":     {"{class.sluice.dev: LSR}", half, true},
		"LSR, one container":    {"{class.sluice.dev/container.proxy: LSR}", both, true},
		"LSR, one part":         {"{class.sluice.dev/pod: LSR}", both, true},
		"LSR beside LS":         {"{class.sluice.dev: LSR, class.sluice.dev/container.proxy: LS}", both, false},
		"fewer CPUs":            {"{class.sluice.dev/pod: LSR, cpus.sluice.dev/container.proxy: '1'}", both, false},
	} {
		for kind, text := range templates(test.annotations, test.containers) {
			t.Run(name+"/"+kind, func(t *testing.T) {
				says := onNode(t, text)
				err := apply(t, cluster, text)
				if (err != nil) != test.refused || (says != "") != test.refused {
					t.Fatalf("the policy says %v, and the node %q", err, says)
				}
				// The node names the container, which an annotation of the whole pod has not.
				_, message, _ := strings.Cut(says, "container default/w/main: ")
				if message == "" {
					message = says
				}
				if !test.refused || strings.Contains(err.Error(), message) {
					return
				}
				_, guess, found := strings.Cut(message, "; did you mean ")
				if before, _, _ := strings.Cut(message, "; did you mean "); !found || guess == "" || !strings.Contains(err.Error(), before) {
					t.Errorf("the policy says %v, and the node %q", err, says)
				}
			})
		}
	}
}

// TestPinnedPods: what the node would start, and the policy refuses nevertheless.
func TestPinnedPods(t *testing.T) {
	cluster := start(t)
	cluster.Namespace(t, "db", nil)
	cluster.Apply(t, strings.Replace(policy(t, "parameters.yaml"), `pinnedNamespaces: "*"`, `pinnedNamespaces: db web`, 1)+"---\n"+policy(t, "pinned.yaml"))
	client := cluster.Client(t)
	lsr := func(namespace string, resources corev1.ResourceRequirements) *corev1.Pod {
		p := pod(namespace, "p", resources)
		p.Annotations["class.sluice.dev"] = "LSR"
		return p
	}
	whole := limits("cpu", "1", "memory", "1Gi")
	bed.Await(t, "the policy acts", func() error {
		if _, err := create(t, client, lsr("default", whole), true); err == nil {
			return bed.ErrNotYet
		}
		return nil
	})
	burstable := limits("cpu", "1", "memory", "1Gi")
	burstable.Requests = corev1.ResourceList{"memory": resource.MustParse("512Mi")}
	koordinator, katalyst := pod("default", "p", whole), pod("default", "p", whole)
	koordinator.Labels = map[string]string{"koordinator.sh/qosClass": "LSR"}
	katalyst.Annotations["katalyst.kubewharf.io/qos_level"] = "dedicated_cores"
	both := func(p *corev1.Pod, key, class string) *corev1.Pod {
		p = p.DeepCopy()
		p.Annotations[key] = class
		return p
	}
	level := lsr("db", corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}})
	level.Spec.Resources = &whole
	idle := lsr("db", whole)
	idle.Spec.Containers = append(idle.Spec.Containers, corev1.Container{Name: "idle", Image: "x", Resources: limits("memory", "1Gi")})
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"its namespace":       {lsr("db", whole), ""},
		"another namespace":   {lsr("default", whole), `annotation class.sluice.dev = "LSR": is not allowed in namespace default; pinnedNamespaces in ConfigMap sluice/sluice-admission lists those that may have CPUs of their own`},
		"Koordinator's":       {koordinator, `label koordinator.sh/qosClass = "LSR": is not allowed in namespace default`},
		"Koordinator's, LS":   {both(koordinator, "class.sluice.dev", "LS"), ""},
		"Koordinator's, BE":   {both(koordinator, "class.sluice.dev/pod", "BE"), ""},
		"Koordinator's, part": {both(koordinator, "class.sluice.dev/container.main", "LS"), ""},
		"Koordinator's, none": {both(koordinator, "class.sluice.dev/container.other", "LS"), `label koordinator.sh/qosClass = "LSR": is not allowed in namespace default`},
		"Koordinator's, LSE":  {both(koordinator, "class.sluice.dev", "LSE"), `annotation class.sluice.dev = "LSE": is not allowed in namespace default`},
		"Katalyst's, LS":      {both(katalyst, "class.sluice.dev", "LS"), ""},
		"Katalyst's":          {katalyst, `annotation katalyst.kubewharf.io/qos_level = "dedicated_cores": is not allowed in namespace default`},
		"memory burstable":    {lsr("db", burstable), "pod db/p: class LSR is for Guaranteed pods"},
		"no memory":           {lsr("db", limits("cpu", "1")), "pod db/p: class LSR is for Guaranteed pods"},
		"pod-level":           {level, ""},
		"a container more":    {idle, "pod db/p: class LSR is for Guaranteed pods"},
		"no class":            {pod("default", "p", burstable), ""},
	} {
		if _, err := create(t, client, test.pod, true); (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

// TestChangedClasses: a pod that has not started yet gets no class that the policy would have refused at its creation,
// and pods whose class stays the same can be changed.
func TestChangedClasses(t *testing.T) {
	cluster := start(t)
	cluster.Namespace(t, "db", nil)
	client := cluster.Client(t)
	gated := func(namespace, name string, labels, annotations map[string]string) *corev1.Pod {
		p := pod(namespace, name, limits("cpu", "1", "memory", "1Gi"))
		p.Labels, p.Annotations = labels, annotations
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/wait"}}
		return p
	}
	words := map[string]string{}
	for _, p := range []*corev1.Pod{
		gated("default", "plain", words, words), gated("db", "plain", words, words),
		gated("default", "part", words, map[string]string{"class.sluice.dev": "LSR", "class.sluice.dev/container.main": "LS"}),
		gated("default", "over", map[string]string{"koordinator.sh/qosClass": "LSR"}, map[string]string{"class.sluice.dev": "LS"}),
		gated("default", "old", words, map[string]string{"class.sluice.dev": "LSR"}),
	} {
		if _, err := create(t, client, p, false); err != nil {
			t.Fatal(err)
		}
	}
	cluster.Apply(t, strings.Replace(policy(t, "parameters.yaml"), `pinnedNamespaces: "*"`, `pinnedNamespaces: db`, 1)+"---\n"+policy(t, "pinned.yaml"))
	change := func(namespace, name string, edit func(*corev1.Pod)) error {
		p, err := client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if p.Labels == nil {
			p.Labels = map[string]string{}
		}
		if p.Annotations == nil {
			p.Annotations = map[string]string{}
		}
		edit(p)
		_, err = client.CoreV1().Pods(namespace).Update(t.Context(), p, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	annotate := func(key, value string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Annotations[key] = value }
	}
	drop := func(key string) func(*corev1.Pod) { return func(p *corev1.Pod) { delete(p.Annotations, key) } }
	label := func(key, value string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Labels[key] = value } }
	const where = " is not allowed in namespace default"
	bed.Await(t, "the policy acts", func() error {
		switch err := change("default", "plain", annotate("class.sluice.dev", "LSR")); {
		case err == nil:
			return bed.ErrNotYet
		case !strings.Contains(err.Error(), where):
			return err
		}
		return nil
	})
	for name, test := range map[string]struct {
		namespace, pod string
		edit           func(*corev1.Pod)
		want           string
	}{
		"LSE":                    {"default", "plain", annotate("class.sluice.dev", "LSE"), `annotation class.sluice.dev = "LSE":` + where},
		"LSE of the pod":         {"default", "plain", annotate("class.sluice.dev/pod", "LSE"), `annotation class.sluice.dev/pod = "LSE":` + where},
		"LSR of a container":     {"default", "plain", annotate("class.sluice.dev/container.main", "LSR"), `annotation class.sluice.dev/container.main = "LSR":` + where},
		"Koordinator's label":    {"default", "plain", label("koordinator.sh/qosClass", "LSR"), `label koordinator.sh/qosClass = "LSR":` + where},
		"Katalyst's annotation":  {"default", "plain", annotate("katalyst.kubewharf.io/qos_level", "dedicated_cores"), `annotation katalyst.kubewharf.io/qos_level = "dedicated_cores":` + where},
		"a container's class":    {"default", "part", drop("class.sluice.dev/container.main"), `annotation class.sluice.dev = "LSR":` + where},
		"what was over a label":  {"default", "over", drop("class.sluice.dev"), `label koordinator.sh/qosClass = "LSR":` + where},
		"another pinned class":   {"default", "old", annotate("class.sluice.dev", "LSE"), `annotation class.sluice.dev = "LSE":` + where},
		"a class of services":    {"default", "plain", annotate("class.sluice.dev", "LS"), ""},
		"no pinned class":        {"default", "old", drop("class.sluice.dev"), ""},
		"in its namespace":       {"db", "plain", annotate("class.sluice.dev", "LSR"), ""},
		"another annotation":     {"default", "old", annotate("example.com/a", "b"), ""},
		"another label":          {"default", "old", label("a", "b"), ""},
		"the end of the waiting": {"default", "old", func(p *corev1.Pod) { p.Spec.SchedulingGates = nil }, ""},
	} {
		if err := change(test.namespace, test.pod, test.edit); (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

// TestStaticPods: the node runs the file of a static pod whatever a policy says of its copy.
func TestStaticPods(t *testing.T) {
	cluster := start(t)
	cluster.Apply(t, strings.Replace(policy(t, "parameters.yaml"), `pinnedNamespaces: "*"`, `pinnedNamespaces: db`, 1)+"---\n"+policy(t, "annotations.yaml")+"---\n"+policy(t, "pinned.yaml"))
	client := cluster.Client(t)
	for key, value := range map[string]string{"class.sluice.dev": "LSR", "xyzzy.sluice.dev": "a"} {
		p := pod("default", "p", limits("cpu", "1", "memory", "1Gi"))
		p.Annotations[key] = value
		bed.Await(t, "the policy of "+key+" acts", func() error {
			if _, err := create(t, client, p, true); err == nil {
				return bed.ErrNotYet
			}
			return nil
		})
		p.Annotations["kubernetes.io/config.mirror"] = "abc"
		p.Spec.NodeName = "a"
		if _, err := create(t, client, p, true); err != nil {
			t.Errorf("the copy of a static pod with %s: %v", key, err)
		}
	}
}

// TestResizeOfPinnedPods: a resize to a fraction of a CPU, which the node would refuse again and again.
func TestResizeOfPinnedPods(t *testing.T) {
	cluster := start(t)
	cluster.Apply(t, policy(t, "parameters.yaml")+"---\n"+policy(t, "pinned.yaml"))
	client := cluster.Client(t)
	p := pod("default", "p", limits("cpu", "1", "memory", "1Gi"))
	p.Annotations["class.sluice.dev"] = "LSR"
	made, err := create(t, client, p, false)
	if err != nil {
		t.Fatal(err)
	}
	// The kubelet would say so, which makes a pod one that can be resized.
	now := made.Spec.Containers[0].Resources
	made.Status.Phase = corev1.PodRunning
	made.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", Resources: &now}}
	if made, err = client.CoreV1().Pods("default").UpdateStatus(t.Context(), made, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	resize := func(cpu string) error {
		p := made.DeepCopy()
		for _, list := range []corev1.ResourceList{p.Spec.Containers[0].Resources.Limits, p.Spec.Containers[0].Resources.Requests} {
			list["cpu"] = resource.MustParse(cpu)
		}
		_, err := client.CoreV1().Pods("default").UpdateResize(t.Context(), "p", p, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	bed.Await(t, "a resize to 1500m is refused", func() error {
		err := resize("1500m")
		switch {
		case err == nil:
			return bed.ErrNotYet
		case !strings.Contains(err.Error(), "LSR pins whole CPUs, and this container requests 1500m; request 1 or 2, or annotate"):
			return err
		}
		return nil
	})
	if err := resize("2"); err != nil {
		t.Errorf("a resize to 2 CPUs: %v", err)
	}
}

// TestObjectsThatExist: what was there before the policies can still be changed, but not to the worse.
func TestObjectsThatExist(t *testing.T) {
	cluster := start(t)
	client := cluster.Client(t)
	const half = "[{name: main, image: x, resources: {limits: {cpu: 500m, memory: 1Gi}}}]"
	cluster.Apply(t, templates("{class.sluice.dev: LSR, xyzzy.sluice.dev: a}", half)["Deployment"])
	cluster.Apply(t, policy(t, "parameters.yaml")+"---\n"+policy(t, "annotations.yaml")+"---\n"+policy(t, "pinned.yaml"))
	bed.Await(t, "the policies act", func() error {
		if apply(t, cluster, templates("{xyzzy.sluice.dev: a}", half)["Pod"]) == nil || apply(t, cluster, templates("{class.sluice.dev: LSR}", half)["Pod"]) == nil {
			return bed.ErrNotYet
		}
		return nil
	})
	for name, test := range map[string]struct {
		edit func(template *corev1.PodTemplateSpec, labels map[string]string)
		want string
	}{
		"a label": {func(_ *corev1.PodTemplateSpec, labels map[string]string) { labels["a"] = "b" }, ""},
		"another key": {func(p *corev1.PodTemplateSpec, _ map[string]string) {
			p.Spec.Containers[0].Resources = limits("cpu", "1", "memory", "1Gi")
			p.Annotations["plugh.sluice.dev"] = ""
		}, `annotation "plugh.sluice.dev"`},
		"another image": {func(p *corev1.PodTemplateSpec, _ map[string]string) { p.Spec.Containers[0].Image = "y" }, "LSR pins whole CPUs"},
		"put right": {func(p *corev1.PodTemplateSpec, _ map[string]string) {
			p.Spec.Containers[0].Resources = limits("cpu", "1", "memory", "1Gi")
			delete(p.Annotations, "xyzzy.sluice.dev")
		}, ""},
	} {
		d, err := client.AppsV1().Deployments("default").Get(t.Context(), "w", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		d.Labels = map[string]string{}
		test.edit(&d.Spec.Template, d.Labels)
		_, err = client.AppsV1().Deployments("default").Update(t.Context(), d, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}
