{{/* Levenshtein distance of two words, a and b: Wagner and Fischer's algorithm with one row, as internal/spelling. */}}
{{- define "dovetail.edits" -}}
{{- $b := splitList "" .b -}}
{{- $row := untilStep 0 (add1 (len $b) | int) 1 -}}
{{- range $i, $letter := splitList "" .a -}}
{{- $next := list (add1 $i) -}}
{{- range $j, $other := $b -}}
{{- $change := ternary (index $row $j) (add1 (index $row $j)) (eq $letter $other) -}}
{{- $next = append $next (min $change (add1 (index $row (add1 $j))) (add1 (index $next $j))) -}}
{{- end -}}
{{- $row = $next -}}
{{- end -}}
{{- last $row -}}
{{- end -}}

{{/* The name nearest to a word, within a third of its letters, at least two, but not all; empty if there is none. Takes a dict of word and names. */}}
{{- define "dovetail.nearest" -}}
{{- $word := lower .word -}}
{{- $limit := min (max 2 (div (len $word) 3)) (sub (len $word) 1) -}}
{{- $best := "" -}}
{{- range $name := .names -}}
{{- if le (max (sub (len $name) (len $word)) (sub (len $word) (len $name))) $limit -}}
{{- $edits := include "dovetail.edits" (dict "a" $word "b" (lower $name)) | int64 -}}
{{- if or (lt $edits $limit) (and (eq $edits $limit) (not $best)) -}}
{{- $best = $name -}}
{{- $limit = $edits -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $best -}}
{{- end -}}

{{/* The path of a value that has a name in any section; empty if there is none. Takes a dict of name and sections. */}}
{{- define "dovetail.elsewhere" -}}
{{- $found := "" -}}
{{- range $section, $names := .sections -}}
{{- range $name := $names -}}
{{- if and (not $found) (eq (lower $name) (lower $.name)) -}}
{{- $found = printf "%s.%s" $section $name | trimPrefix ".." -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $found -}}
{{- end -}}

{{/*
Values with a name that the chart does not know, as a YAML map of path to the one that was probably meant; empty for none, such as for
a value that another version of Karpenter's chart had. A name is not known if "dovetail.known" does not list it in its section.
*/}}
{{- define "dovetail.unknown" -}}
{{- $sections := dict -}}
{{- range splitList "\n" (include "dovetail.known" . | trim) -}}
{{- $_ := set $sections (splitList ": " . | first) (splitList ": " . | last | splitList " ") -}}
{{- end -}}
{{- $unknown := dict -}}
{{- range $path, $names := $sections -}}
{{- $at := $.Values -}}
{{- range splitList "." $path -}}
{{- if and . (kindIs "map" $at) -}}
{{- $at = get $at . -}}
{{- end -}}
{{- end -}}
{{- $prefix := eq $path "." | ternary "" (printf "%s." $path) -}}
{{- if or (kindIs "map" $at) (eq $path ".") -}}
{{- range $name, $_ := $at -}}
{{- if not (has $name $names) -}}
{{- $meant := include "dovetail.nearest" (dict "word" $name "names" $names) -}}
{{- $meant = empty $meant | ternary (include "dovetail.elsewhere" (dict "name" $name "sections" $sections)) (printf "%s%s" $prefix $meant) -}}
{{- $_ := set $unknown (printf "%s%s" $prefix $name) $meant -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toYaml $unknown -}}
{{- end -}}

{{/* Fails for values that were probably meant to be others. */}}
{{- define "dovetail.refuseTypos" -}}
{{- $typos := list -}}
{{- range $name, $meant := include "dovetail.unknown" . | fromYaml -}}
{{- if $meant -}}
{{- $typos = append $typos (printf "%s: unknown; did you mean %s?" $name $meant) -}}
{{- end -}}
{{- end -}}
{{- with $typos -}}
{{- fail (join "\n" .) -}}
{{- end -}}
{{- end -}}
