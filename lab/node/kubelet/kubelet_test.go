package kubelet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
)

// node is a kubelet's view of a small node, talking to an API server that holds the objects.
func node(t *testing.T, objects ...runtime.Object) (Config, *fake.Clientset, *journal) {
	t.Helper()
	client, log := fake.NewClientset(objects...), &journal{}
	versioned(client)
	resources := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(
			"2",
		), corev1.ResourceMemory: resource.MustParse("4Gi"), corev1.ResourcePods: resource.MustParse("3"),
	}
	return Config{
		Client: client, Name: "node", IP: netip.MustParseAddr("10.0.1.5"), PodIPs: netip.MustParsePrefix("100.64.0.0/30"),
		Capacity: resources, Allocatable: resources, Stages: compiled(t, stagesYAML), Timing: Timing{}.withDefaults(), Log: log.add,
		Info: corev1.NodeSystemInfo{OperatingSystem: "linux", Architecture: "amd64"},
	}, client, log
}

// versioned gives every patched pod a new resource version, as an API server does.
func versioned(client *fake.Clientset) {
	patch := clienttesting.ObjectReaction(client.Tracker())
	version := 100
	client.PrependReactor("patch", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		handled, object, err := patch(action)
		if pod, ok := object.(*corev1.Pod); ok && err == nil {
			version++
			pod.ResourceVersion = strconv.Itoa(version)
			err = client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("pods"), pod, pod.Namespace)
		}
		return handled, object, err
	})
}

// journal is what a kubelet logged.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(severity byte, text string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf("%c %s", severity, text))
}

func (j *journal) count(text string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := 0
	for _, line := range j.lines {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// work runs the pods of the node for the rest of the test.
func work(t *testing.T, cfg Config) *pods {
	t.Helper()
	p := newPods(cfg)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.loop(ctx)
	}()
	t.Cleanup(func() {
		stop()
		<-done
	})
	return p
}

// deletions notes when pods are deleted, as time since the start.
func deletions(client *fake.Clientset) func() []time.Duration {
	start := time.Now()
	var mu sync.Mutex
	var at []time.Duration
	client.PrependReactor("delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		at = append(at, time.Since(start))
		return false, nil, nil
	})
	return func() []time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return at
	}
}

func version(v string) edit { return func(p *corev1.Pod) { p.ResourceVersion = v } }

// The time that a pod has to end runs from its deletion: other changes do not prolong it, and only a
// shorter grace period shortens it.
func TestGracePeriodRunsFromDeletion(t *testing.T) {
	for _, tt := range []struct {
		name         string
		first, later *corev1.Pod // the later one is seen five seconds after the first
		want         time.Duration
	}{
		{
			"a label changes meanwhile",
			pod(ready, version("10"), deleted(30), sleepHook(10)),
			pod(ready, version("11"), deleted(30), sleepHook(10), func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} }),
			10 * time.Second,
		},
		{
			"deleted again with less grace",
			pod(ready, version("10"), deleted(60), annotated("ignores-sigterm", "true")),
			pod(ready, version("11"), deleted(3), annotated("ignores-sigterm", "true")),
			8 * time.Second,
		},
		{
			"an old state is seen late",
			pod(ready, version("10"), deleted(30), sleepHook(10)),
			pod(ready, version("9")),
			10 * time.Second,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg, client, _ := node(t, tt.first)
				deletedAt := deletions(client)
				p := work(t, cfg)
				p.events <- podEvent{pod: tt.first}
				time.Sleep(5 * time.Second)
				p.events <- podEvent{pod: tt.later}
				time.Sleep(time.Minute)
				synctest.Wait()
				if got := deletedAt(); len(got) != 1 || got[0] != tt.want {
					t.Errorf("deleted after %v, want once after %v", got, tt.want)
				}
			})
		})
	}
}

func TestFailedCallsAreRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := pod(version("10"))
		cfg, client, log := node(t, web)
		failures := 0
		client.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			if failures++; failures <= 3 {
				return true, nil, errors.New("etcdserver: leader changed")
			}
			return false, nil, nil
		})
		p := work(t, cfg)
		p.events <- podEvent{pod: web}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		got, err := client.CoreV1().Pods("default").Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got.Status.Phase != corev1.PodRunning || got.Status.PodIP != "100.64.0.1" {
			t.Errorf("status %+v", got.Status)
		}
		if n := log.count("etcdserver: leader changed"); n != 3 {
			t.Errorf("%d failures logged, want 3", n)
		}
	})
}

// An API server that has just started may not know a pod that exists. Until the watch shows that the pod is gone, its end is tried again.
func TestAPodThatIsNotFoundIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := pod(ready, version("10"), deleted(1))
		cfg, client, _ := node(t, web)
		failures := 0
		client.PrependReactor("delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			if failures++; failures <= 2 {
				return true, nil, apierrors.NewNotFound(corev1.Resource("pods"), "web")
			}
			return false, nil, nil
		})
		p := work(t, cfg)
		p.events <- podEvent{pod: web}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if _, err := client.CoreV1().Pods("default").Get(t.Context(), "web", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Fatalf("the pod is still there, after %d attempts: %v", failures, err)
		}
		p.events <- podEvent{pod: web, gone: true}
		before := failures
		time.Sleep(time.Minute)
		synctest.Wait()
		if failures != before {
			t.Errorf("%d more attempts after it was gone", failures-before)
		}
	})
}

func needing(cpu string) edit {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	}
}

// A pod of a StatefulSet that is deleted and made anew on the same node while the API server is away leaves nothing
// behind.
func TestPodThatTookAnothersName(t *testing.T) {
	one := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "db-0", UID: "1"}}
	two := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "db-0", UID: "2"}}
	var got []string
	h := handler(func(pod *corev1.Pod, gone bool) { got = append(got, fmt.Sprint(pod.UID, " gone=", gone)) })
	h.OnAdd(one, false)
	h.OnUpdate(one, one)
	h.OnUpdate(one, two)
	h.OnDelete(cache.DeletedFinalStateUnknown{Obj: two})
	if diff := cmp.Diff([]string{"1 gone=false", "1 gone=false", "1 gone=true", "2 gone=false", "2 gone=true"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAdmission(t *testing.T) {
	state := func(admitted bool, edits ...edit) *podState { return &podState{pod: pod(edits...), admitted: admitted} }
	succeeded := func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }
	wantsGPU := func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}
	}
	for _, tt := range []struct {
		name   string
		others []*podState
		pod    *corev1.Pod
		want   string
	}{
		{"fits to the last millicore", []*podState{state(true, running, needing("1500m"))}, pod(needing("500m")), ""},
		{"a millicore too many", []*podState{state(true, running, needing("1500m"))}, pod(needing("501m")), "OutOfcpu"},
		{"pods that ended take nothing", []*podState{state(true, succeeded, needing("2"))}, pod(needing("2")), ""},
		{"pods that were refused take nothing", []*podState{state(false, needing("2"))}, pod(needing("2")), ""},
		{"too many pods", []*podState{state(true, running), state(true, running), state(true, running)}, pod(), "OutOfpods"},
		{"a device that the node lacks", nil, pod(wantsGPU), "OutOfnvidia.com/gpu"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg, _, _ := node(t)
			p := newPods(cfg)
			for n, other := range tt.others {
				other.pod.UID += "-" + other.pod.UID[:1]
				for range n {
					other.pod.UID += "x"
				}
				p.states[other.pod.UID] = other
			}
			if got, message := p.rejection(&podState{pod: tt.pod}); got != tt.want {
				t.Errorf("reason %q (%s), want %q", got, message, tt.want)
			}
		})
	}
}

// A kubelet that is rejected tries again ever more slowly, and works as soon as it is let in.
func TestKubeletDoesNotGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, client, log := node(t)
		letIn := time.Now().Add(time.Minute)
		client.PrependReactor("create", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			if time.Now().Before(letIn) {
				return true, nil, apierrors.NewUnauthorized("Unauthorized")
			}
			return false, nil, nil
		})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			New(cfg).Run(ctx)
		}()
		time.Sleep(90 * time.Second)
		synctest.Wait()
		stop()
		<-done

		if n := log.count(`"Unable to register node with API server" err="Unauthorized" node="node"`); n < 10 || n > 20 {
			t.Errorf("refused %d times in a minute, want between 10 and 20", n)
		}
		got, err := client.CoreV1().Nodes().Get(t.Context(), "node", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range got.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
				t.Errorf("condition %+v", c)
			}
		}
		if len(got.Status.Conditions) != 4 {
			t.Errorf("conditions %+v", got.Status.Conditions)
		}
		lease, err := client.CoordinationV1().Leases("kube-node-lease").Get(t.Context(), "node", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if *lease.Spec.LeaseDurationSeconds != 40 || *lease.Spec.HolderIdentity != "node" {
			t.Errorf("lease %+v", lease.Spec)
		}
	})
}

func TestAddresses(t *testing.T) {
	a := newAddresses(netip.MustParsePrefix("100.64.0.0/30"))
	of := func(pod string) string {
		t.Helper()
		ip, err := a.of(types.UID(pod))
		if err != nil {
			return err.Error()
		}
		return ip
	}
	for _, step := range []struct{ release, pod, want string }{
		{"", "a", "100.64.0.1"},
		{"", "b", "100.64.0.2"},
		{"", "a", "100.64.0.1"},  // keeps it
		{"a", "c", "100.64.0.3"}, // one that was released rests
		{"", "d", "100.64.0.1"},
		{"", "e", "no address left in 100.64.0.0/30"},
	} {
		if step.release != "" {
			a.release(types.UID(step.release))
		}
		if got := of(step.pod); got != step.want {
			t.Errorf("pod %s: %s, want %s", step.pod, got, step.want)
		}
	}
}

// Stages as people write them for kwok, in its older form, in place of the default ones.
const ownStages = `
kind: Stage
apiVersion: kwok.x-k8s.io/v1alpha1
metadata: {name: pod-ready}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - {key: '.metadata.deletionTimestamp', operator: DoesNotExist}
    - {key: '.status.podIP', operator: DoesNotExist}
  next:
    event: {type: Normal, reason: Started, message: Started everything}
    finalizers:
      add: [{value: example.com/hold}]
    statusTemplate: |
      phase: Running
      hostIP: {{ NodeIPWith .spec.nodeName | Quote }}
      podIP: {{ PodIPWith .spec.nodeName ( or .spec.hostNetwork false ) ( or .metadata.uid "" ) ( or .metadata.name "" ) ( or .metadata.namespace "" ) | Quote }}
---
kind: Stage
apiVersion: kwok.x-k8s.io/v1alpha1
metadata: {name: pod-crash}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchLabels: {crash: "yes"}
    matchExpressions:
    - {key: '.status.phase', operator: In, values: [Running]}
  delay:
    durationMilliseconds: 2000
  next:
    statusTemplate: |
      phase: Failed
      reason: Evicted
`

func TestStagesCanBeReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := pod(version("10"), func(p *corev1.Pod) { p.Labels = map[string]string{"crash": "yes"} })
		cfg, client, _ := node(t, web)
		cfg.Stages = compiled(t, []byte(ownStages))
		p := work(t, cfg)
		p.events <- podEvent{pod: web}
		for _, step := range []struct {
			after time.Duration
			want  corev1.PodPhase
		}{{1900 * time.Millisecond, corev1.PodRunning}, {time.Second, corev1.PodFailed}} {
			time.Sleep(step.after)
			synctest.Wait()
			got, err := client.CoreV1().Pods("default").Get(t.Context(), "web", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got.Status.Phase != step.want || got.Status.PodIP != "100.64.0.1" || got.Status.HostIP != "10.0.1.5" || len(got.Finalizers) != 1 {
				t.Errorf("want %s: %+v, finalizers %v", step.want, got.Status, got.Finalizers)
			}
		}
		events, err := client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(events.Items) != 1 || events.Items[0].Reason != "Started" || events.Items[0].InvolvedObject.UID != web.UID {
			t.Errorf("events %+v", events.Items)
		}
	})
}

func TestStagesThatAreRefused(t *testing.T) {
	for _, tt := range []struct{ name, document, want string }{
		{"about nodes", "metadata: {name: n}\nspec: {resourceRef: {kind: Node}}", "about Nodes, not about pods"},
		{"a field that Stage lacks", "metadata: {name: n}\nspec: {resource: {kind: Pod}}", "unknown field"},
		{
			"a query that is none",
			"metadata: {name: n}\nspec: {resourceRef: {kind: Pod}, selector: {matchExpressions: [{key: '.[', operator: Exists}]}}",
			"compile stages",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			stages, err := ParseStages([]byte(tt.document))
			if err == nil {
				_, err = NewStages(stages)
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q in it", err, tt.want)
			}
		})
	}
}
