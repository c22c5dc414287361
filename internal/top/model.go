package top

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// The messages of a Model. Any other value changes nothing.
type (
	// Key is a key press, as Bubble Tea names keys: "up", "enter", "ctrl+c", or the typed text.
	Key string
	// Resize is the size of the terminal in columns and rows.
	Resize struct{ Width, Height int }
	// Observed is a new state of the cluster.
	Observed struct {
		Fleet *Fleet
		// Prices states where prices come from; empty while they are not known. PricesProblem states why they are not those that were requested.
		Prices, PricesProblem string
		Link                  Link
	}
	// Predicted is a new forecast.
	Predicted struct{ *Forecast }
	// Realized is what the decisions of a recording have saved until a time: in $/h now, and in $ in all. Both are negative if replacements
	// cost more than what they replace.
	Realized struct {
		Until         time.Time `json:"until"`
		HourlySavings float64   `json:"hourlySavings"`
		TotalSavings  float64   `json:"totalSavings"`
	}
	// Tick is the time, for ages.
	Tick time.Time
)

// Link describes how the model is connected to the cluster.
type Link struct {
	// Name names the cluster or the file.
	Name string
	// File is true for a cluster from files, which never changes.
	File bool
	// Loading states what is still being read, in words; empty once everything is.
	Loading string
	// Lost is since when the API server has not answered, and LostWhy its error; zero while it does.
	Lost    time.Time
	LostWhy string
	// Missing are the permissions that the user lacks, and the kinds that the cluster lacks, each with what is not shown for it.
	Missing []string
	// Forbidden are the resources, such as nodeclaims.karpenter.sh, that the user may not list and watch.
	Forbidden []string
	// NotPlanned states why there is no forecast of this state; empty if there is one, or will be.
	NotPlanned string
}

// view is one of the lists.
type view int

const (
	viewNodes view = iota
	viewPending
	viewChanges
	views
)

// place is an open detail: a node by name, or a pod by UID.
type place struct {
	node string
	pod  types.UID
}

// cursor is a selected row. It follows its row while the list changes; once the row is gone, it stays at the same index.
type cursor struct {
	id            string
	index, offset int
}

// Model is the state of the screen. It is a value: Update returns the next one.
type Model struct {
	width, height int
	now           time.Time
	observed      Observed
	// fleet is the observed one with the forecast; nil before the first.
	fleet    *Fleet
	forecast *Forecast
	// realized is zero without a recording.
	realized Realized

	view    view
	open    []place
	cursors map[string]cursor
	group   grouping
	order   ordering
	// reversed turns the order around.
	reversed bool
	filter   string
	// editing is true while a filter is typed; before is what it was.
	editing bool
	before  string
	help    bool
	helpTop int
	// Done is true once the user has quit.
	Done bool

	// What is shown, made by rebuild: the list, and the lines above it.
	list list
	top  []line
}

// NewModel returns the state before anything is known.
func NewModel(link Link) Model {
	m := Model{width: 80, height: 24, group: byPool, order: byName, cursors: map[string]cursor{}, observed: Observed{Link: link}}
	m.rebuild()
	return m
}

// Update returns the state after a message.
func (m Model) Update(message any) Model {
	cursors := make(map[string]cursor, len(m.cursors))
	for id, c := range m.cursors {
		cursors[id] = c
	}
	m.cursors, m.open = cursors, slices.Clone(m.open)
	switch message := message.(type) {
	case Key:
		m.press(string(message))
	case Resize:
		m.width, m.height = max(message.Width, 1), max(message.Height, 1)
	case Observed:
		m.observe(message)
	case Predicted:
		m.forecast = message.Forecast
		m.observe(m.observed)
	case Realized:
		m.realized = message
	case Tick:
		m.now = time.Time(message)
	}
	m.rebuild()
	return m
}

// Prices are no part of a fleet without any: the last that were known stay.
func (m *Model) observe(o Observed) {
	if o.Fleet == nil {
		o.Fleet = m.observed.Fleet
	}
	m.observed = o
	if o.Fleet != nil {
		m.fleet = o.Fleet.with(m.forecast)
		if o.Fleet.At.After(m.now) || o.Link.File {
			m.now = o.Fleet.At
		}
	}
}

// press handles a key.
func (m *Model) press(key string) {
	switch {
	case key == "ctrl+c":
		m.Done = true
	case m.help:
		m.pressInHelp(key)
	case m.editing:
		m.edit(key)
	case m.move(key):
	default:
		m.command(key)
	}
}

func (m *Model) pressInHelp(key string) {
	switch key {
	case "up", "k":
		m.helpTop--
	case "down", "j":
		m.helpTop++
	case "pgdown", "space":
		m.helpTop += m.body()
	case "pgup":
		m.helpTop -= m.body()
	default:
		m.help = false
	}
	m.helpTop = min(max(m.helpTop, 0), max(0, len(m.helpLines())-m.body()))
}

// edit changes the filter while it is typed. The list follows every key.
func (m *Model) edit(key string) {
	switch {
	case key == "enter":
		m.editing = false
	case key == "esc":
		m.editing, m.filter = false, m.before
	case key == "backspace":
		if typed := []rune(m.filter); len(typed) > 0 {
			m.filter = string(typed[:len(typed)-1])
		}
	case key == "ctrl+u":
		m.filter = ""
	case key == "space":
		m.filter += " "
	case width(clean(key)) == 1 && clean(key) == key && len(m.filter) < maxFilter:
		m.filter += key
	case key == "up", key == "down":
		m.move(key)
	}
}

// maxFilter limits how many bytes of a filter can be typed: as many as the longest name has.
const maxFilter = 253

// move moves the cursor, and reports whether the key does that.
func (m *Model) move(key string) bool {
	page := max(m.body()-1, 1)
	by, moves := map[string]int{
		"up": -1, "k": -1, "down": 1, "j": 1, "pgup": -page, "ctrl+b": -page, "pgdown": page, "ctrl+f": page, "space": page,
		"home": -len(m.list.rows), "end": len(m.list.rows), "G": len(m.list.rows),
	}[key]
	if !moves {
		return false
	}
	c, rows := m.cursors[m.page()], m.list.rows
	to := min(max(c.index+by, 0), max(len(rows)-1, 0))
	// Titles are skipped, in the direction of the move, then in the other.
	for _, step := range []int{sign(by), -sign(by)} {
		for i := to; i >= 0 && i < len(rows); i += step {
			if rows[i].id != "" {
				c.index, c.id = i, rows[i].id
				if i == m.list.first() && step < 0 || by < 0 && i == m.list.first() {
					c.offset = 0 // titles above the first row come into view
				}
				m.cursors[m.page()] = c
				return true
			}
		}
	}
	// Nothing can be selected: the page scrolls.
	c.index, c.id = to, ""
	m.cursors[m.page()] = c
	return true
}

// first is the index of the first row that can be selected; -1 if there is none.
func (l list) first() int { return slices.IndexFunc(l.rows, func(r row) bool { return r.id != "" }) }

func sign(n int) int {
	if n < 0 {
		return -1
	}
	return 1
}

// command handles the other keys.
func (m *Model) command(key string) {
	switch key {
	case "q":
		m.Done = true
	case "?", "h", "f1":
		m.help, m.helpTop = true, 0
	case "/":
		m.editing, m.before, m.open = true, m.filter, nil
	case "esc", "backspace", "left":
		m.back(key)
	case "enter", "right", "l":
		m.enter()
	case "tab", "shift+tab":
		step := 1
		if key == "shift+tab" {
			step = int(views) - 1
		}
		m.view, m.open = (m.view+view(step))%views, nil
	case "1", "2", "3":
		m.view, m.open = view(key[0]-'1'), nil
	case "s":
		m.order, m.reversed = next(orderings, m.order), false
	case "S", "r":
		m.reversed = !m.reversed
	case "g":
		m.group = next(groupings, m.group)
	}
}

// back closes the nearest thing: the detail, else with escape the filter.
func (m *Model) back(key string) {
	switch {
	case len(m.open) > 0:
		delete(m.cursors, m.page())
		m.open = m.open[:len(m.open)-1]
	case key == "esc":
		m.filter = ""
	}
}

// maxOpen limits how many details are open at once: a pod leads to its node and back, without end.
const maxOpen = 16

// enter opens the selected row.
func (m *Model) enter() {
	i := m.cursors[m.page()].index
	if i < 0 || i >= len(m.list.rows) || m.list.rows[i].opens == (place{}) || len(m.open) >= maxOpen {
		return
	}
	m.open = append(m.open, m.list.rows[i].opens)
}

// page identifies what the cursor belongs to.
func (m *Model) page() string {
	if last := len(m.open) - 1; last >= 0 {
		return "node " + m.open[last].node + " pod " + string(m.open[last].pod)
	}
	return string(rune('0' + m.view))
}

// rebuild makes what is shown, and moves the cursor to the row that it was on. It costs O(rows), with a logarithm for sorting
// them; drawing costs only the rows on the screen.
func (m *Model) rebuild() {
	m.list = m.makeList()
	m.top = m.makeTop()
	c := m.cursors[m.page()]
	c.index = m.list.nearest(c)
	c.id = ""
	if c.index < len(m.list.rows) {
		c.id = m.list.rows[c.index].id
	}
	if c.index == m.list.first() && c.index < m.body() {
		c.offset = 0
	}
	c.offset = min(max(c.offset, c.index-m.body()+1), c.index)
	c.offset = max(0, min(c.offset, len(m.list.rows)-m.body()))
	m.cursors[m.page()] = c
}

// nearest is the index of the cursor's row; once that is gone, of the nearest one that can be selected.
func (l list) nearest(c cursor) int {
	if at := slices.IndexFunc(l.rows, func(r row) bool { return r.id != "" && r.id == c.id }); at >= 0 {
		return at
	}
	index := min(max(c.index, 0), max(len(l.rows)-1, 0))
	for i := range l.rows {
		if j := index + i; j < len(l.rows) && l.rows[j].id != "" {
			return j
		}
		if j := index - i; j >= 0 && j < len(l.rows) && l.rows[j].id != "" {
			return j
		}
	}
	return index
}
