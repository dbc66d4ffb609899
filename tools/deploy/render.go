// SPDX-License-Identifier: Apache-2.0
// Renders the chart with the engine that Helm uses: Go's text/template with sprig (Debian's golang-github-masterminds-sprig-dev), and Helm's own
// functions include, required and toYaml. `make test-deploy` compares its objects with those of tools/deploy/chart.py.
//
//	render FOLDER <values.json     all values, defaults merged; writes the objects as JSON
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig"
	"sigs.k8s.io/yaml"
)

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "render:", err)
		os.Exit(1)
	}
}

func main() {
	folder := os.Args[1]
	var values, about map[string]interface{}
	text, err := io.ReadAll(os.Stdin)
	fail(err)
	fail(json.Unmarshal(text, &values))
	text, err = os.ReadFile(filepath.Join(folder, "Chart.yaml"))
	fail(err)
	fail(yaml.Unmarshal(text, &about))
	chart := map[string]interface{}{}
	for name, value := range about {
		chart[strings.ToUpper(name[:1])+name[1:]] = value
	}
	dot := map[string]interface{}{"Values": values, "Chart": chart,
		"Release": map[string]interface{}{"Name": "demo", "Namespace": "default", "Service": "Helm"}}

	all := template.New("chart").Option("missingkey=error")
	functions := sprig.TxtFuncMap()
	functions["include"] = func(name string, data interface{}) (string, error) {
		var out bytes.Buffer
		err := all.ExecuteTemplate(&out, name, data)
		return out.String(), err
	}
	functions["required"] = func(message string, value interface{}) (interface{}, error) {
		if value == nil || value == "" {
			return nil, fmt.Errorf("%s", message)
		}
		return value, nil
	}
	functions["toYaml"] = func(value interface{}) (string, error) {
		text, err := yaml.Marshal(value)
		return strings.TrimSuffix(string(text), "\n"), err
	}
	all.Funcs(functions)
	files, err := filepath.Glob(filepath.Join(folder, "templates", "*"))
	fail(err)
	sort.Strings(files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		fail(err)
		_, err = all.New(filepath.Base(file)).Parse(string(text))
		fail(err)
	}
	objects := []interface{}{}
	for _, file := range files {
		var out bytes.Buffer
		fail(all.ExecuteTemplate(&out, filepath.Base(file), dot))
		if !strings.HasSuffix(file, ".yaml") {
			continue
		}
		for _, part := range strings.Split("\n"+out.String(), "\n---\n") {
			var object interface{}
			fail(yaml.UnmarshalStrict([]byte(part), &object))
			if object != nil {
				objects = append(objects, object)
			}
		}
	}
	fail(json.NewEncoder(os.Stdout).Encode(objects))
}
