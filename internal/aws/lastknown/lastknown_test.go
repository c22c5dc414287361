package lastknown

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func store(api *fake.Clientset, change ...func(*Store)) *Store {
	s := &Store{
		Client: api.CoreV1().ConfigMaps("kube-system"), Region: "us-east-1", ClusterUID: "uid-1", Now: func() time.Time { return noon },
	}
	for _, c := range change {
		c(s)
	}
	return s
}

// The next process finds what was kept, if it is of the same cluster and region.
func TestAnswersAreKept(t *testing.T) {
	api := fake.NewClientset()
	want := map[string]float64{"m5.large": 0.096}
	if err := store(api).Save(t.Context(), Prices, noon.Add(-time.Hour), want); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name  string
		next  *Store
		found bool
	}{
		{"a restart", store(api), true},
		{"another region", store(api, func(s *Store) { s.Region = "eu-west-1" }), false},
		{"a copy of the cluster", store(api, func(s *Store) { s.ClusterUID = "uid-2" }), false},
		{"a clock that was wrong", store(api, func(s *Store) { s.Now = func() time.Time { return noon.Add(-2 * time.Hour) } }), false},
	} {
		var got map[string]float64
		at, found, err := tc.next.Load(t.Context(), Prices, &got)
		if err != nil || found != tc.found {
			t.Errorf("%s: found %v, %v", tc.name, found, err)
		}
		if found && (!at.Equal(noon.Add(-time.Hour)) || cmp.Diff(want, got) != "") {
			t.Errorf("%s: got %v of %v", tc.name, got, at)
		}
	}
	if _, found, err := store(api).Load(t.Context(), InstanceTypes, &want); found || err != nil {
		t.Errorf("another answer: found %v, %v", found, err)
	}
}

// What cannot be read, or does not fit, is an error, and nothing is half kept.
func TestBadAnswers(t *testing.T) {
	for name, damage := range map[string]func(*corev1.ConfigMap){
		"no data":        func(c *corev1.ConfigMap) { c.Data, c.BinaryData = nil, nil },
		"no answer":      func(c *corev1.ConfigMap) { c.BinaryData = nil },
		"not compressed": func(c *corev1.ConfigMap) { c.BinaryData[keyAnswer] = []byte(`{}`) },
		"cut off":        func(c *corev1.ConfigMap) { c.BinaryData[keyAnswer] = c.BinaryData[keyAnswer][:12] },
	} {
		api := fake.NewClientset()
		if err := store(api).Save(t.Context(), Prices, noon, map[string]float64{"m5.large": 0.096}); err != nil {
			t.Fatal(err)
		}
		kept, err := api.CoreV1().ConfigMaps("kube-system").Get(t.Context(), Prices.Name(), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		damage(kept)
		if _, err := api.CoreV1().ConfigMaps("kube-system").Update(t.Context(), kept, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		var got map[string]float64
		if _, found, err := store(api).Load(t.Context(), Prices, &got); found || err == nil || !strings.Contains(err.Error(), Prices.Name()) {
			t.Errorf("%s: found %v, error %v", name, found, err)
		}
	}
	large := make([]uint64, 100_000)
	for i := range large {
		large[i] = rand.Uint64()
	}
	api := fake.NewClientset()
	if err := store(api).Save(t.Context(), Prices, noon, large); err == nil || !strings.Contains(err.Error(), "KiB") {
		t.Errorf("a large answer: %v", err)
	}
	if _, found, err := store(api).Load(t.Context(), Prices, &large); found || err != nil {
		t.Errorf("a large answer is kept in part: %v, %v", found, err)
	}
}

// Processes that restart one after another write once in an hour.
func TestAnswersAreNotWrittenAtEachStart(t *testing.T) {
	api := fake.NewClientset()
	writes := func() (n int) {
		for _, a := range api.Actions() {
			if a.GetVerb() != "get" {
				n++
			}
		}
		return n
	}
	for i, age := range []time.Duration{0, time.Minute, 59 * time.Minute, time.Hour} {
		s, got := store(api), 0
		s.Now = func() time.Time { return noon.Add(age) }
		if _, _, err := s.Load(t.Context(), Prices, &got); err != nil {
			t.Fatal(err)
		}
		if err := s.Save(t.Context(), Prices, noon.Add(age), i); err != nil {
			t.Fatal(err)
		}
	}
	if n := writes(); n != 3 { // an update that finds nothing, the creation, and the update after an hour
		t.Errorf("%d writes", n)
	}
}
