package hostilepods

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func milli(n int64) *resource.Quantity { return resource.NewMilliQuantity(n, resource.DecimalSI) }

func mebi(n int64) *resource.Quantity { return resource.NewQuantity(n<<20, resource.BinarySI) }

// amount is a valid amount of cpu, memory or ephemeral storage, which mostly makes no sense. The API server takes a request with exponents
// like 1e2147483647 too, but does not answer it in time.
func (d dice) amount() resource.Quantity {
	return resource.MustParse(pick(d, "0", "1", "100m", "1m", "1n", "0.5", "1.5Gi", "2000", "64Gi", "9223372036854775807",
		"9223372036854775807m", "9223372036854775808", "9223372036854775", "18446744073709552", "10P", "100P", "1Ei", "7Ei", "8Ei", "1e18",
		"1e30", "1e400", strings.Repeat("9", 300), strings.Repeat("9", 40)+".000000001"))
}

// whole is an amount of a resource that is requested in integers: the API server computes in thousandths, and refuses larger ones.
func (d dice) whole() resource.Quantity {
	return resource.MustParse(pick(d, "0", "1", "2", "2000", "1e15", "5P", "9223372036854775"))
}

// pages is an amount of pages of 2Mi.
func (d dice) pages() resource.Quantity {
	return resource.MustParse(pick(d, "0", "2Mi", "64Gi", "4Ei"))
}

// requirements returns what a container requests. Extended resources and pages have limits, which are the same.
func (d dice) requirements() corev1.ResourceRequirements {
	r := corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
	for range d.from(1, 3) {
		switch name := pick(d, corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, "nvidia.com/gpu",
			"example.com/widget", "hugepages-2Mi", corev1.ResourceName("example.com/"+strings.Repeat("w", 63))); {
		case strings.Contains(string(name), "/"):
			r.Requests[name] = d.whole()
			r.Limits[name] = r.Requests[name]
		case name == "hugepages-2Mi":
			r.Requests[name] = d.pages()
			r.Limits[name] = r.Requests[name]
			if _, found := r.Requests[corev1.ResourceMemory]; !found { // the API server wants one beside
				r.Requests[corev1.ResourceMemory] = d.amount()
			}
		default:
			r.Requests[name] = d.amount()
			if limit := d.amount(); d.maybe(40) && limit.Cmp(r.Requests[name]) >= 0 {
				r.Limits[name] = limit
			}
		}
	}
	for name, limit := range r.Limits { // drawn twice
		if request := r.Requests[name]; request.Cmp(limit) > 0 {
			r.Limits[name] = request
		}
	}
	return r
}

// resources edits what the pod requests.
func (d dice) resources(p *corev1.Pod) {
	always := corev1.ContainerRestartPolicyAlways
	p.Spec.Containers[0].Resources = d.requirements()
	for i := range d.n(3) {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: fmt.Sprint("more-", i), Image: "x", Resources: d.requirements()})
	}
	for i := range d.n(3) {
		c := corev1.Container{Name: fmt.Sprint("init-", i), Image: "x", Resources: d.requirements()}
		if d.maybe(50) {
			c.RestartPolicy = &always
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
	if d.maybe(30) {
		class := pick(d, runtimeClasses()...)
		p.Spec.RuntimeClassName, p.Spec.Overhead = &class.Name, class.Overhead.PodFixed
	}
	if d.maybe(30) {
		d.wholePod(p)
	}
	if d.maybe(10) { // the kubelet reports these
		r := d.requirements()
		p.Status.ContainerStatuses = []corev1.ContainerStatus{
			{Name: p.Spec.Containers[0].Name, Resources: &r, AllocatedResources: d.requirements().Requests},
		}
	}
}

// wholePod has the pod request cpu or memory, and its containers none: they may not request more than the pod.
func (d dice) wholePod(p *corev1.Pod) {
	name := pick(d, corev1.ResourceCPU, corev1.ResourceMemory)
	amount := d.amount()
	for _, containers := range [][]corev1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for i := range containers {
			r := &containers[i].Resources
			if _, pages := r.Requests["hugepages-2Mi"]; pages {
				return // it needs the other resource
			}
			delete(r.Requests, name)
			delete(r.Limits, name)
		}
	}
	p.Spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{name: amount}}
	if d.maybe(50) {
		p.Spec.Resources.Limits = corev1.ResourceList{name: amount}
	}
}

// priorities are values by the names of PriorityClasses; those of the system exist in every cluster.
func priorities() map[string]int32 {
	return map[string]int32{
		"hostile-lowest": -2_147_483_648, "hostile-low": -1, "hostile-high": 1_000_000_000, "system-node-critical": 2_000_001_000,
	}
}

// runtimeClasses returns what the overhead of pods comes from.
func runtimeClasses() (out []*nodev1.RuntimeClass) {
	for i, cpu := range []string{"0", "250m", "9223372036854775807m", "1e30"} {
		out = append(out, &nodev1.RuntimeClass{
			TypeMeta:   metav1.TypeMeta{APIVersion: "node.k8s.io/v1", Kind: "RuntimeClass"},
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("hostile-", i)}, Handler: "x",
			Overhead: &nodev1.Overhead{PodFixed: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse([]string{"120Mi", "8Ei"}[i%2]),
			}},
		})
	}
	return out
}

// Classes are the PriorityClasses and RuntimeClasses that the pods refer to, without those that every cluster has.
func Classes() (out []runtime.Object) {
	for name, value := range priorities() {
		if !strings.HasPrefix(name, "system-") {
			out = append(out, &schedulingv1.PriorityClass{
				TypeMeta:   metav1.TypeMeta{APIVersion: "scheduling.k8s.io/v1", Kind: "PriorityClass"},
				ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value,
			})
		}
	}
	for _, class := range runtimeClasses() {
		out = append(out, class)
	}
	return out
}
