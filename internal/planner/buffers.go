package planner

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/buffer"
	"github.com/dovetail-k8s/dovetail/internal/report"
)

// bufferNames are the buffers of the report, sorted.
func (r *Report) bufferNames() []types.NamespacedName {
	var out []types.NamespacedName
	if r.Buffers == nil {
		return nil
	}
	for name := range r.Buffers.Buffers {
		out = append(out, name)
	}
	slices.SortFunc(out, func(a, b types.NamespacedName) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// buffers lists where the room of capacity buffers is, and the nodes to launch for it, which no pod of the plan needs.
func (r *Report) buffers(p *report.Page) {
	var rows [][]string
	for _, name := range r.bufferNames() {
		o := r.Buffers.Buffers[name]
		rows = append(rows, []string{name.String(), o.Message()})
	}
	p.Section("Room that capacity buffers reserve", []string{"BUFFER", "PODS"}, rows)
	if r.Buffers == nil {
		return
	}
	rows = nil
	count := map[string]int{}
	for i := range r.Buffers.Launches {
		l := &r.Buffers.Launches[i]
		row := []string{
			l.Pool.Name, l.InstanceTypes[0].Name, l.Offering.Zone, l.Offering.CapacityType, each(l.Offering), strings.Join(buffersOf(l.Pods), ", "),
		}
		key := strings.Join(row, "\t")
		if count[key]++; count[key] == 1 {
			rows = append(rows, row)
		}
	}
	for i, row := range rows {
		rows[i] = append([]string{strconv.Itoa(count[strings.Join(row, "\t")])}, row...)
	}
	columns := []string{"COUNT", "NODEPOOL", "TYPE", "ZONE", "CAPACITY", "$/H EACH", "FOR"}
	p.Section("Nodes to launch for them, beside those of the plan", columns, rows)
}

// buffersOf names the buffers of virtual pods, with how many each has.
func buffersOf(pods []*corev1.Pod) []string {
	count := map[string]int{}
	var out []string
	for _, p := range pods {
		name := buffer.BufferOf(p).String()
		if count[name]++; count[name] == 1 {
			out = append(out, name)
		}
	}
	for i, name := range out {
		out[i] = fmt.Sprintf("%s x%d", name, count[name])
	}
	return out
}

// jsonBuffer states where the room of a capacity buffer is.
type jsonBuffer struct {
	Name          string `json:"name"`
	OnExisting    int    `json:"onExisting"`
	NeedNew       int    `json:"needNew"`
	Unschedulable int    `json:"unschedulable"`
	Why           string `json:"why,omitempty"`
}

func newBuffer(name types.NamespacedName, o buffer.Outcome) jsonBuffer {
	return jsonBuffer{name.String(), o.OnExisting, o.NeedNew, o.Unschedulable, o.Why}
}
