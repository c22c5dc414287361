package shadow

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	clienttesting "k8s.io/client-go/testing"

	et "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
)

// apiServer has one ConfigMap, which is applied as by the API server: at the version that is given, if one is.
type apiServer struct {
	object  *corev1.ConfigMap
	version int
}

func (a *apiServer) client() typedcorev1.ConfigMapInterface {
	set, which := fake.NewClientset(), schema.GroupResource{Resource: "configmaps"}
	set.PrependReactor("get", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		if a.object == nil {
			return true, nil, apierrors.NewNotFound(which, ConfigMapName)
		}
		return true, a.object.DeepCopy(), nil
	})
	set.PrependReactor("patch", "configmaps", func(action clienttesting.Action) (bool, runtime.Object, error) {
		applied := &corev1.ConfigMap{}
		if err := json.Unmarshal(action.(clienttesting.PatchAction).GetPatch(), applied); err != nil {
			return true, nil, err
		}
		switch given := applied.ResourceVersion; {
		case given != "" && a.object == nil:
			return true, nil, errors.New("resourceVersion should not be set on objects to be created")
		case given != "" && given != a.object.ResourceVersion:
			return true, nil, apierrors.NewConflict(which, ConfigMapName, errors.New("it has been modified"))
		}
		a.write(applied)
		return true, applied.DeepCopy(), nil
	})
	return set.CoreV1().ConfigMaps("karpenter")
}

func (a *apiServer) write(o *corev1.ConfigMap) {
	a.version++
	a.object = o.DeepCopy()
	a.object.ResourceVersion = strconv.Itoa(a.version)
	o.ResourceVersion = a.object.ResourceVersion
}

// Two shadows in one namespace keep one report, in which nothing counts twice, and one is informed of the other.
func TestTwoShadowsKeepOneReport(t *testing.T) {
	server := &apiServer{}
	first, second := newCluster(t), newCluster(t)
	stores := map[*cluster]*ConfigMap{first: {Client: server.client()}, second: {Client: server.client()}}
	var told []*cluster
	pass := func(c *cluster) Report {
		r := c.pass(5 * time.Second)
		if err := stores[c].Save(t.Context(), c.ledger); errors.Is(err, ErrOverwritten) {
			told = append(told, c)
		} else if err != nil {
			t.Fatal(err)
		}
		return r
	}
	pods := et.Pods(2, "web", et.Requests("cpu", "900m"))
	for _, c := range []*cluster{first, second} {
		c.pods = pods
	}
	for range 5 {
		pass(first)
		pass(second)
	}
	for _, c := range []*cluster{first, second} {
		r := c.ledger.Report()
		c.want(r, "launches", float64(r.Shadow.Launches), 1)
	}
	if len(told) == 0 {
		t.Error("neither is told of the other")
	}
	read, err := ReadReport(server.object)
	if err != nil || read.Shadow.Launches != 1 || !read.Since.Equal(first.ledger.Report().Since) {
		t.Errorf("%v, %+v", err, read)
	}
}

// What people do to the ConfigMap neither stops the report nor changes it.
func TestEditsOfTheConfigMapAreWrittenOver(t *testing.T) {
	for name, edit := range map[string]func(a *apiServer){
		"deleted": func(a *apiServer) { a.object = nil },
		"emptied": func(a *apiServer) { a.object.Data = nil; a.write(a.object) },
		"no JSON": func(a *apiServer) { a.object.Data[stateKey] = "{"; a.write(a.object) },
		"labeled": func(a *apiServer) { a.object.Labels = map[string]string{"team": "x"}; a.write(a.object) },
		"other numbers": func(a *apiServer) {
			a.object.Data[reportKey] = strings.Replace(a.object.Data[reportKey], "1", "7", 3)
			a.write(a.object)
		},
		"another's, cut":    func(a *apiServer) { a.object.Data[reportKey] = a.object.Data[reportKey][:20]; a.write(a.object) },
		"created by others": func(a *apiServer) { a.write(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: ConfigMapName}}) },
	} {
		t.Run(name, func(t *testing.T) {
			server := &apiServer{}
			store := &ConfigMap{Client: server.client()}
			c := newCluster(t, et.Node("empty", "general"))
			c.pods = et.Pods(1, "web", et.Requests("cpu", "3500m"))
			c.pass(5 * time.Second)
			if err := store.Save(t.Context(), c.ledger); err != nil {
				t.Fatal(err)
			}
			edit(server)
			before := c.pass(20 * time.Second)
			err := store.Save(t.Context(), c.ledger)
			if errors.Is(err, ErrOverwritten) { // the edit looks like a report of another shadow
				t.Logf("%v", err)
			} else if err != nil {
				t.Fatal(err)
			}
			if err := store.Save(t.Context(), c.ledger); err != nil {
				t.Fatal(err)
			}
			if read, err := ReadReport(server.object); err != nil || read.Passes != before.Passes && name != "other numbers" {
				t.Errorf("%v, %+v", err, read)
			}
		})
	}
}

// The numbers of a report with other fields cannot be added to, and would read as zero.
func TestAReportOfAnotherFormatBeginsAnew(t *testing.T) {
	server := &apiServer{}
	server.write(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: ConfigMapName}, Data: map[string]string{
		reportKey: `{"passes": 700, "shadow": {"launches": 9, "perHour": 1.5}}`, stateKey: "{}",
	}})
	if _, err := ReadReport(server.object); !errors.Is(err, errFormat) {
		t.Errorf("the report is read: %v", err)
	}
	store, c := &ConfigMap{Client: server.client()}, newCluster(t)
	if err := store.Load(t.Context(), c.ledger); err != nil {
		t.Fatal(err)
	}
	c.pods = et.Pods(1, "web", et.Requests("cpu", "900m"))
	c.pass(5 * time.Second)
	if err := store.Save(t.Context(), c.ledger); err != nil {
		t.Fatal(err)
	}
	if r, err := ReadReport(server.object); err != nil || r.Passes >= 700 || r.Shadow.Launches != 1 {
		t.Errorf("%v, %+v", err, r)
	}
}

// A report of any size fits into a ConfigMap, with what a process needs to go on.
func TestTheConfigMapHasALimit(t *testing.T) {
	long := strings.Repeat("n", 253)
	many := func(n int) (nodes []string, launches []Launch) {
		for range n {
			nodes, launches = append(nodes, long), append(launches, Launch{NodePool: long, InstanceType: "m.large", Zone: "z1"})
		}
		return nodes, launches
	}
	l := newLedger()
	l.state.Known = map[types.UID]known{}
	for i := range 10000 {
		l.state.Known[types.UID(fmt.Sprintf("%036d", i))] = known{Name: long, HourlyCost: 1, Priced: true}
	}
	for range 2 * maxActions {
		nodes, launches := many(1000)
		l.state.Report.Decisions = keep(l.state.Report.Decisions, Action{Nodes: nodes, Launches: launches})
		l.state.Report.Actions = keep(l.state.Report.Actions, Action{Nodes: nodes, Launches: launches})
	}
	l.state.Pending = []pendingNode{{Name: "shadow-1"}}
	data, err := l.data()
	if err != nil {
		t.Fatal(err)
	}
	size := 0
	for _, text := range data {
		size += len(text)
	}
	var read state
	if err := json.Unmarshal([]byte(data[stateKey]), &read); err != nil || len(read.Pending) != 1 {
		t.Errorf("%v: what waits is lost, and would count again", err)
	}
	report, err := ReadReport(&corev1.ConfigMap{Data: data})
	if err != nil || size > 1<<20 || len(report.Decisions) == 0 {
		t.Fatalf("%v, %d bytes, %d decisions", err, size, len(report.Decisions))
	}
	if got := report.Decisions[0].words(); !strings.Contains(got, " and 950 more ") || strings.Count(got, long) != maxNodes {
		t.Errorf("%.100s...", got)
	}
}
