package console

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/internal/doctor"
	"github.com/dovetail-k8s/dovetail/internal/top"
)

func TestASearchFindsPodsByAPartOfTheirName(t *testing.T) {
	w := newWorld(t)
	pods := []*corev1.Pod{}
	add := func(namespace, name, node string) {
		pods = append(pods, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.PodSpec{NodeName: node},
		})
	}
	add("web", "my-cart-0", "n")
	add("shop", "cart-2", "n")
	add("shop", "my-cart-1", "")
	add("cart", "db", "n")
	add("shop", "other", "n")
	w.observed.Fleet.Pods = top.PodsOf(pods)
	c := w.console()
	found := decoded[Found](t, get(c, apiRoot+"/search?text=%20CART"))
	names := []string{}
	for _, p := range found.Pods {
		names = append(names, p.Namespace+"/"+p.Name+" "+p.Node)
	}
	if got, want := strings.Join(names, ", "), "shop/cart-2 n, cart/db n, shop/my-cart-1 , web/my-cart-0 n"; got != want || found.More != 0 {
		t.Errorf("it finds %s and %d more, want %s", got, found.More, want)
	}
	if one := decoded[Found](t, get(c, apiRoot+"/search?text=shop/my")); len(one.Pods) != 1 || one.Pods[0].Name != "my-cart-1" {
		t.Errorf("by namespace and name it finds %+v", one)
	}
	for _, text := range []string{"", strings.Repeat("a", mostSearched+1)} {
		if answer := get(c, apiRoot+"/search?text="+text); answer.Code != http.StatusBadRequest {
			t.Errorf("%d characters: %d %s", len(text), answer.Code, answer.Body)
		}
	}
	for _, short := range []string{"db", "b"} {
		found := decoded[Found](t, get(c, apiRoot+"/search?text="+short))
		if !slices.ContainsFunc(found.Pods, func(p FoundPod) bool { return p.Name == "db" }) {
			t.Errorf("%q finds %+v", short, found)
		}
	}
	for i := range 5 * mostFound {
		add("bulk", "job-"+strconv.Itoa(i), "n")
	}
	w.observed.Fleet.Pods = top.PodsOf(pods)
	if many := decoded[Found](t, get(w.console(), apiRoot+"/search?text=job")); len(many.Pods) != mostFound || many.More != 4*mostFound {
		t.Errorf("of %d it shows %d and counts %d more", 5*mostFound, len(many.Pods), many.More)
	}
	if none := decoded[Found](t, get(New(w.Sources), apiRoot+"/search?text=job")); len(none.Pods) != 0 {
		t.Errorf("before the cluster is read: %+v", none)
	}
}

func TestASearchFindsChecksByAPartOfTheirID(t *testing.T) {
	w := newWorld(t)
	runs := 0
	w.Diagnose = func(context.Context) (doctor.Report, error) {
		runs++
		return doctor.Report{Findings: []doctor.Finding{{Check: "nodes-late"}, {Check: "nodes-late"}}}, nil
	}
	c := w.console()
	find := func(text string) map[string]string {
		out := map[string]string{}
		for _, f := range decoded[Found](t, get(c, apiRoot+"/search?text="+text)).Checks {
			out[f.ID] = "not asked"
			if f.Findings != nil {
				out[f.ID] = strconv.Itoa(*f.Findings)
			}
			if f.Title == "" {
				t.Errorf("%s has no title", f.ID)
			}
		}
		return out
	}
	if got := find("NODES-LA"); len(got) != 1 || got["nodes-late"] != "not asked" || runs != 0 {
		t.Errorf("it finds %v after %d runs of the checks", got, runs)
	}
	get(c, apiRoot+"/doctor")
	if got := find("nodes-"); got["nodes-late"] != "2" || got["nodes-stuck-taint"] != "0" || len(got) > mostChecks || runs != 1 {
		t.Errorf("it finds %v after %d runs of the checks", got, runs)
	}
	for _, none := range []string{"no", "no-such-check"} {
		if got := find(none); len(got) != 0 {
			t.Errorf("%q finds %v", none, got)
		}
	}
	w.Diagnose = nil
	c = w.console()
	if got := find("nodes-late"); len(got) != 0 {
		t.Errorf("without a live cluster it finds %v", got)
	}
}
