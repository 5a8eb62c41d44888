// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package configfile

// ChartSchema returns the JSON schema of the chart's value "configuration": the file without its kind, and without the
// fields that other values of the chart set.
func ChartSchema() map[string]any {
	root := describe()
	delete(root.fields, "apiVersion")
	delete(root.fields, "kind")
	return root.jsonSchema()
}

func (n *node) jsonSchema() map[string]any {
	schema := map[string]any{}
	switch n.kind {
	case object:
		properties := map[string]any{}
		for name, inner := range n.fields {
			if value := inner.rule.byChart; value != "" {
				properties[name] = map[string]any{"description": "The chart sets it by " + value + ", and refuses it here."}
				continue
			}
			properties[name] = inner.jsonSchema()
		}
		schema["type"], schema["additionalProperties"], schema["properties"] = "object", false, properties
		if n.rule.required != "" {
			schema["required"] = []string{n.rule.required}
		}
	case list:
		schema["type"], schema["maxItems"], schema["items"] = "array", n.rule.max, n.item.jsonSchema()
	case boolean:
		schema["type"] = "boolean"
	case text:
		n.rule.addText(schema)
	case integer, number:
		n.addNumber(schema)
	case duration:
		schema["type"], schema["pattern"] = "string", durationPattern
	case quantity:
		schema["type"], schema["pattern"], schema["maxLength"] = "string", quantityPattern, maxQuantity
	}
	return schema
}

func (r *rule) addText(schema map[string]any) {
	switch {
	case len(r.values) > 0:
		schema["enum"] = r.values
	case r.pattern != "":
		schema["type"], schema["pattern"] = "string", r.pattern
	case r.isExpression:
		schema["type"], schema["minLength"], schema["maxLength"] = "string", 1, r.max
	default:
		schema["type"] = "string"
	}
}

func (n *node) addNumber(schema map[string]any) {
	schema["type"] = "number"
	if n.kind == integer {
		schema["type"] = "integer"
	}
	schema["minimum"] = n.rule.min
	if n.rule.above {
		delete(schema, "minimum")
		schema["exclusiveMinimum"] = n.rule.min
	}
	if n.rule.max > 0 {
		schema["maximum"] = n.rule.max
	}
}
