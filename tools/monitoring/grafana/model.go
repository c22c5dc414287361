package grafana

// schemaVersion is that of Grafana 10.4. Later versions migrate it when they load a dashboard.
const schemaVersion = 39

// The types below are Grafana's JSON, as far as the dashboards use it.

type model struct {
	Annotations   annotations `json:"annotations"`
	Description   string      `json:"description"`
	Editable      bool        `json:"editable"`
	GraphTooltip  int         `json:"graphTooltip"`
	Links         []link      `json:"links"`
	Panels        []panel     `json:"panels"`
	Refresh       string      `json:"refresh"`
	SchemaVersion int         `json:"schemaVersion"`
	Tags          []string    `json:"tags"`
	Templating    templating  `json:"templating"`
	Time          timeRange   `json:"time"`
	Timezone      string      `json:"timezone"`
	Title         string      `json:"title"`
	UID           string      `json:"uid"`
}

type annotations struct {
	List []struct{} `json:"list"`
}

type link struct {
	Title       string `json:"title"`
	Type        string `json:"type"`
	URL         string `json:"url"`
	IncludeVars bool   `json:"includeVars"`
	KeepTime    bool   `json:"keepTime"`
}

type timeRange struct {
	From string `json:"from"`
	To   string `json:"to"`
}

type templating struct {
	List []variable `json:"list"`
}

type variable struct {
	Name       string         `json:"name"`
	Label      string         `json:"label"`
	Type       string         `json:"type"`
	Query      any            `json:"query"`
	Datasource *datasource    `json:"datasource,omitempty"`
	Definition string         `json:"definition,omitempty"`
	Refresh    int            `json:"refresh"`
	Sort       int            `json:"sort,omitempty"`
	Multi      bool           `json:"multi"`
	IncludeAll bool           `json:"includeAll"`
	AllValue   string         `json:"allValue,omitempty"`
	Current    map[string]any `json:"current"`
	Hide       int            `json:"hide"`
}

type datasource struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

type gridPos struct {
	H int `json:"h"`
	W int `json:"w"`
	X int `json:"x"`
	Y int `json:"y"`
}

type panel struct {
	ID              int              `json:"id"`
	Type            string           `json:"type"`
	Title           string           `json:"title"`
	Description     string           `json:"description,omitempty"`
	Collapsed       *bool            `json:"collapsed,omitempty"`
	GridPos         gridPos          `json:"gridPos"`
	Datasource      *datasource      `json:"datasource,omitempty"`
	FieldConfig     *fieldConfig     `json:"fieldConfig,omitempty"`
	Options         map[string]any   `json:"options,omitempty"`
	Targets         []target         `json:"targets,omitempty"`
	Transformations []transformation `json:"transformations,omitempty"`
	Interval        string           `json:"interval,omitempty"`
	Panels          []panel          `json:"panels,omitempty"`
}

type fieldConfig struct {
	Defaults  map[string]any `json:"defaults"`
	Overrides []override     `json:"overrides"`
}

type override struct {
	Matcher    matcher    `json:"matcher"`
	Properties []property `json:"properties"`
}

type matcher struct {
	ID      string `json:"id"`
	Options string `json:"options"`
}

type property struct {
	ID    string `json:"id"`
	Value any    `json:"value"`
}

type target struct {
	RefID        string     `json:"refId"`
	Datasource   datasource `json:"datasource"`
	EditorMode   string     `json:"editorMode"`
	Expr         string     `json:"expr"`
	LegendFormat string     `json:"legendFormat,omitempty"`
	Format       string     `json:"format"`
	Range        bool       `json:"range"`
	Instant      bool       `json:"instant"`
}

type transformation struct {
	ID      string         `json:"id"`
	Options map[string]any `json:"options"`
}

// source is the data source that the variable selects.
var source = datasource{Type: "prometheus", UID: "${datasource}"}

func (d Dashboard) model() model {
	out := model{
		Annotations: annotations{List: []struct{}{}}, Description: d.Description, Editable: true,
		GraphTooltip: 1, // the same time in all panels
		Links:        []link{}, Refresh: "30s", SchemaVersion: schemaVersion, Tags: []string{"dovetail"},
		Time: timeRange{From: d.From, To: "now"}, Timezone: "browser", Title: d.Title, UID: d.UID,
	}
	for _, l := range d.Links {
		out.Links = append(out.Links, link{Title: l.Title, Type: "link", URL: "/d/" + l.UID, IncludeVars: true, KeepTime: true})
	}
	for _, v := range d.Variables {
		out.Templating.List = append(out.Templating.List, v.model())
	}
	panels, headings, _ := d.Layout()
	for _, p := range panels {
		for len(headings) > 0 && headings[0].Y < p.Y {
			out.Panels = append(out.Panels, headings[0].model())
			headings = headings[1:]
		}
		out.Panels = append(out.Panels, p.model())
	}
	for _, h := range headings {
		out.Panels = append(out.Panels, h.model())
	}
	number(out.Panels, 1)
	return out
}

func (v Variable) model() variable {
	if v.Query == "" {
		return variable{
			Name: v.Name, Label: v.Label, Type: "datasource", Query: "prometheus", Refresh: 1, Current: map[string]any{},
		}
	}
	return variable{
		Name: v.Name, Label: v.Label, Type: "query", Datasource: &source, Definition: v.Query,
		Query:   map[string]any{"query": v.Query, "refId": "variable-" + v.Name},
		Refresh: 2, // with the times of the page
		Sort:    1, Multi: true, IncludeAll: true,
		AllValue: ".*", // also matches series without the label
		Current:  map[string]any{"selected": true, "text": []string{"All"}, "value": []string{"$__all"}},
	}
}

func (h Heading) model() panel {
	collapsed := len(h.Hidden) > 0
	out := panel{Type: "row", Title: h.Title, Collapsed: &collapsed, GridPos: gridPos{H: 1, W: columns, Y: h.Y}}
	for _, p := range h.Hidden {
		out.Panels = append(out.Panels, p.model())
	}
	return out
}

// number gives the panels IDs from one on, and returns the next.
func number(panels []panel, id int) int {
	for i := range panels {
		panels[i].ID = id
		id = number(panels[i].Panels, id+1)
	}
	return id
}

func (p Placed) model() panel {
	out := panel{
		Type: string(p.Kind), Title: p.Title, Description: p.Description, Datasource: &source,
		GridPos:     gridPos{H: p.Height, W: p.Width, X: p.X, Y: p.Y},
		FieldConfig: &fieldConfig{Defaults: p.defaults(), Overrides: []override{}}, Options: p.options(),
	}
	for i, q := range p.Queries {
		t := target{
			RefID: refID(i), Datasource: source, EditorMode: "code", Expr: q.Expr, LegendFormat: q.Legend, Format: "time_series",
			Range: true,
		}
		if p.Kind == Table || p.Kind == BarGauge {
			t.Range, t.Instant = false, true
		}
		if p.Kind == Table {
			t.Format, t.LegendFormat = "table", ""
		}
		out.Targets = append(out.Targets, t)
	}
	for _, c := range p.Colors {
		out.FieldConfig.Overrides = append(out.FieldConfig.Overrides, override{
			matcher{"byName", c.Series}, []property{{"color", map[string]any{"mode": "fixed", "fixedColor": c.Color}}},
		})
	}
	if p.Bars {
		out.Interval = "2m" // BarInterval
	}
	if p.Kind == Table {
		out.FieldConfig.Overrides = append(out.FieldConfig.Overrides, p.columnOverrides()...)
		out.Transformations = p.transformations()
	}
	return out
}

// defaults are the options of all fields.
func (p Panel) defaults() map[string]any {
	color := map[string]any{"mode": "palette-classic-by-name"}
	if len(p.Steps) > 0 {
		color = map[string]any{"mode": "thresholds"}
	}
	out := map[string]any{"unit": string(p.Unit), "color": color, "thresholds": thresholds(p.Steps)}
	if p.Min != nil {
		out["min"] = *p.Min
	}
	if p.Max != nil {
		out["max"] = *p.Max
	}
	if p.Decimals != nil {
		out["decimals"] = *p.Decimals
	}
	if p.Empty != "" {
		out["noValue"] = p.Empty
	}
	switch p.Kind {
	case TimeSeries:
		out["color"] = map[string]any{"mode": "palette-classic-by-name"}
		out["custom"] = p.lines()
	case Table:
		out["custom"] = map[string]any{"align": "auto", "filterable": true}
	}
	return out
}

// lines is how a panel over time draws its series.
func (p Panel) lines() map[string]any {
	out := map[string]any{
		"drawStyle": "line", "lineWidth": 1, "fillOpacity": 8, "showPoints": "never", "spanNulls": false,
		"stacking":        map[string]any{"mode": "none", "group": "A"},
		"thresholdsStyle": map[string]any{"mode": "off"},
	}
	if p.Bars {
		out["drawStyle"], out["fillOpacity"], out["lineWidth"] = "bars", 70, 0
		out["stacking"] = map[string]any{"mode": "normal", "group": "A"}
	}
	if p.Stacked {
		out["fillOpacity"], out["stacking"] = 50, map[string]any{"mode": "normal", "group": "A"}
		out["lineInterpolation"] = "stepAfter"
	}
	if len(p.Steps) > 0 {
		out["thresholdsStyle"] = map[string]any{"mode": "line"}
	}
	return out
}

// thresholds are Grafana's steps; a neutral one without any.
func thresholds(steps []Step) map[string]any {
	out := []map[string]any{{"color": "text", "value": nil}}
	for i, s := range steps {
		if i == 0 {
			out[0]["color"] = s.Color
			continue
		}
		out = append(out, map[string]any{"color": s.Color, "value": s.From})
	}
	return map[string]any{"mode": "absolute", "steps": out}
}

// options are those of the panel's kind.
func (p Panel) options() map[string]any {
	last := map[string]any{"calcs": []string{"lastNotNull"}, "fields": "", "values": false}
	switch p.Kind {
	case Stat:
		return map[string]any{
			"reduceOptions": last, "colorMode": "value", "graphMode": "area", "justifyMode": "auto", "orientation": "auto",
			"textMode": "auto", "wideLayout": true,
		}
	case BarGauge:
		return map[string]any{
			"reduceOptions": last, "displayMode": "basic", "orientation": "horizontal", "showUnfilled": true, "valueMode": "color",
			"namePlacement": "left", "sizing": "manual", "minVizHeight": 16, "maxVizHeight": 28, "minVizWidth": 8,
		}
	case Table:
		return map[string]any{"cellHeight": "sm", "showHeader": true, "footer": map[string]any{"show": false}}
	}
	return map[string]any{
		"legend": map[string]any{
			"displayMode": "list", "placement": "bottom", "showLegend": true, "calcs": []string{},
		},
		"tooltip": map[string]any{"mode": "multi", "sort": "desc"},
	}
}

// columnOverrides are units and colors of the columns of a table, by their titles.
func (p Panel) columnOverrides() []override {
	var out []override
	for _, c := range p.Columns {
		var properties []property
		if c.Unit != "" {
			properties = append(properties, property{"unit", string(c.Unit)})
		}
		if len(c.Steps) > 0 {
			properties = append(properties, property{"thresholds", thresholds(c.Steps)},
				property{"custom.cellOptions", map[string]any{"type": "color-text"}},
				property{"color", map[string]any{"mode": "thresholds"}})
		}
		if properties != nil {
			out = append(out, override{matcher{"byName", c.Title}, properties})
		}
	}
	return out
}

// transformations join the queries of a table, and select, order and name its columns.
func (p Panel) transformations() []transformation {
	index, rename, include := map[string]any{}, map[string]any{}, []string{}
	for i, c := range p.Columns {
		index[c.Field], rename[c.Field] = i, c.Title
		include = append(include, c.Field)
	}
	return []transformation{
		{"merge", map[string]any{}},
		{"filterFieldsByName", map[string]any{"include": map[string]any{"names": include}}},
		{"organize", map[string]any{"indexByName": index, "renameByName": rename, "excludeByName": map[string]any{}}},
	}
}
