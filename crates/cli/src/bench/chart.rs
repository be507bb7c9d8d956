//! How is it drawn? Panels side by side as in the paper: lines over sizes, delays or ratios, or bars in groups. SVG.

use plotters::coord::Shift;
use plotters::prelude::*;
use std::path::Path;

/// Size of a panel, pixels.
const PANEL: (u32, u32) = (520, 340);
/// Height of the band with the names of all series, pixels.
const LEGEND: u32 = 28;
const GUIDE: RGBColor = RGBColor(90, 90, 90);

/// A library has its colour in every chart; a series without one is a guide.
fn colour(name: &str) -> Option<RGBColor> {
    Some(match name {
        "off" => RGBColor(150, 150, 150),
        "always" => RGBColor(120, 170, 235),
        "adaptive" | "whimbrel" => RGBColor(31, 78, 156),
        "MPICH" => RGBColor(217, 130, 43),
        "Open MPI" => RGBColor(63, 143, 91),
        "1 socket" | "1 rail" => RGBColor(170, 200, 240),
        "2 sockets" | "2 rails" => RGBColor(110, 155, 220),
        "3 sockets" => RGBColor(60, 105, 185),
        "4 sockets" => RGBColor(20, 55, 120),
        "shadow segments" => RGBColor(217, 130, 43),
        "allocated segments" => RGBColor(31, 78, 156),
        "before the ring" => RGBColor(150, 150, 150),
        "without remote access" | "pinned each time" | "RC in pieces" | "UD without data reliability" => RGBColor(150, 150, 150),
        "with remote access" | "overlapped" | "RC, write, no cache" | "UD" => RGBColor(217, 130, 43),
        "RC, write" | "UD, checksum" => RGBColor(63, 143, 91),
        "with remote access and cache" | "pin-down cache" | "RC" => RGBColor(31, 78, 156),
        "open addressing" => RGBColor(31, 78, 156),
        "2^20 buckets" => RGBColor(217, 130, 43),
        "balanced tree" => RGBColor(63, 143, 91),
        "latency" | "hot buffer" | "a page apart" | "broadcast" | "usage table" | "direct" | "direct after a change" => RGBColor(31, 78, 156),
        "copy" | "one to a page" | "scatter" => RGBColor(217, 130, 43),
        "back to back" | "scatter, temporary memory stays" => RGBColor(63, 143, 91),
        "each buffer once" | "a page apart, in turn" => RGBColor(150, 150, 150),
        _ => return None,
    })
}

#[derive(Debug, Clone, Default)]
pub struct Chart {
    /// Panels beside each other.
    pub columns: usize,
    pub panels: Vec<Panel>,
}

#[derive(Debug, Clone)]
pub struct Panel {
    pub title: String,
    pub x_label: String,
    pub y_label: String,
    /// What stands below the axis at 0, 1, 2 …; none for an axis of numbers.
    pub categories: Vec<String>,
    pub series: Vec<Series>,
    pub shape: Shape,
}

#[derive(Debug, Clone)]
pub struct Series {
    pub name: String,
    /// x is the place of a category where there are any. Points that are no number are left out.
    pub points: Vec<(f64, f64)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Those that are no library's are dashed.
    Lines,
    Bars,
}

impl Chart {
    /// Writes the chart.
    ///
    /// Errors: the file cannot be written, or there is nothing to draw.
    pub fn draw(&self, path: &Path) -> Result<(), String> {
        let columns = self.columns.clamp(1, self.panels.len().max(1));
        let rows = self.panels.len().div_ceil(columns).max(1);
        let size = (PANEL.0 * columns as u32, PANEL.1 * rows as u32 + LEGEND);
        let area = SVGBackend::new(path, size).into_drawing_area();
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        area.fill(&WHITE).map_err(|error| failed(&error))?;
        let (legend, panels) = area.split_vertically(LEGEND);
        self.draw_legend(&legend).map_err(|error| failed(&error))?;
        for (panel, place) in self.panels.iter().zip(panels.split_evenly((rows, columns))) {
            panel.draw(&place).map_err(|error| failed(&error))?;
        }
        area.present().map_err(|error| failed(&error))
    }

    /// The names of all series in one line, each behind its colour.
    fn draw_legend(&self, area: &DrawingArea<SVGBackend, Shift>) -> Result<(), Box<dyn std::error::Error>> {
        let mut names: Vec<&str> = Vec::new();
        for series in self.panels.iter().flat_map(|panel| &panel.series) {
            if !names.contains(&series.name.as_str()) {
                names.push(&series.name);
            }
        }
        let mut left = 60;
        for name in names {
            match colour(name) {
                Some(colour) => area.draw(&Rectangle::new([(left, 9), (left + 14, 19)], colour.filled()))?,
                None => area.draw(&plotters::element::DashedPathElement::new([(left, 14), (left + 14, 14)], 4, 3, GUIDE.stroke_width(1)))?,
            }
            area.draw(&Text::new(name.to_owned(), (left + 20, 8), ("sans-serif", 14)))?;
            left += 40 + 8 * name.chars().count() as i32;
        }
        Ok(())
    }
}

impl Panel {
    fn draw(&self, area: &DrawingArea<SVGBackend, Shift>) -> Result<(), Box<dyn std::error::Error>> {
        let points: Vec<(f64, f64)> = self.series.iter().flat_map(|series| finite(&series.points)).collect();
        let (x_range, y_range) = self.ranges(&points);
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, ("sans-serif", 15))
            .margin(10)
            .x_label_area_size(40)
            .y_label_area_size(55)
            .build_cartesian_2d(x_range, y_range)?;
        let label = |x: &f64| match self.categories.get(x.round().max(0.0) as usize) {
            Some(label) if (x - x.round()).abs() < 1e-6 => label.clone(),
            Some(_) => String::new(),
            None if self.categories.is_empty() => format!("{x}"),
            None => String::new(),
        };
        let count = if self.categories.is_empty() { 8 } else { self.categories.len() + 2 };
        chart
            .configure_mesh()
            .x_labels(count)
            .x_label_formatter(&label)
            .y_label_formatter(&|y| format!("{}", (y * 1e6).round() / 1e6))
            .x_desc(&self.x_label)
            .y_desc(&self.y_label)
            .light_line_style(TRANSPARENT)
            .bold_line_style(BLACK.mix(0.12))
            .disable_x_mesh()
            .draw()?;
        let width = 0.8 / self.series.len().max(1) as f64;
        for (at, series) in self.series.iter().enumerate() {
            let points: Vec<_> = finite(&series.points).collect();
            match (self.shape, colour(&series.name)) {
                (Shape::Bars, colour) => {
                    let colour = colour.unwrap_or(GUIDE);
                    chart.draw_series(points.iter().map(|&(x, y)| {
                        let left = x - 0.4 + width * at as f64;
                        Rectangle::new([(left, 0.0), (left + width * 0.92, y)], colour.filled())
                    }))?;
                }
                (Shape::Lines, Some(colour)) => {
                    chart.draw_series(points.iter().map(|&point| Circle::new(point, 3, colour.filled())))?;
                    chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?;
                }
                (Shape::Lines, None) => {
                    chart.draw_series(DashedLineSeries::new(points, 4, 4, GUIDE.stroke_width(1)))?;
                }
            }
        }
        Ok(())
    }

    /// The axes: all points, zero in height, and a little room.
    fn ranges(&self, points: &[(f64, f64)]) -> (std::ops::Range<f64>, std::ops::Range<f64>) {
        let most = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).fold(0.0, f64::max);
        let least_y = points.iter().map(|point| point.1).fold(0.0, f64::min);
        let most_y = most(|point| point.1);
        let room = if most_y > least_y { (most_y - least_y) * 0.08 } else { 1.0 };
        let low = if least_y < 0.0 { least_y - room } else { 0.0 };
        let x = if self.categories.is_empty() { 0.0..most(|point| point.0).max(1e-9) * 1.04 } else { -0.5..self.categories.len() as f64 - 0.5 };
        (x, low..most_y + room)
    }
}

fn finite(points: &[(f64, f64)]) -> impl Iterator<Item = (f64, f64)> + Clone {
    points.iter().copied().filter(|(x, y)| x.is_finite() && y.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panel(shape: Shape, categories: &[&str], points: &[(f64, f64)]) -> Panel {
        Panel {
            title: "Overlap".into(),
            x_label: "bytes".into(),
            y_label: "%".into(),
            categories: categories.iter().map(|&name| name.to_owned()).collect(),
            series: vec![Series { name: "adaptive".into(), points: points.to_vec() }],
            shape,
        }
    }

    #[test]
    fn charts_are_drawn_with_their_words_even_without_points() {
        let points = [(0.0, 1.0), (1.0, f64::NAN), (1.0, -3.0)];
        let panels = vec![
            panel(Shape::Lines, &["4 KiB", "64 KiB"], &points),
            panel(Shape::Bars, &["CG.B", "BT.A"], &points),
            panel(Shape::Lines, &[], &points),
            panel(Shape::Lines, &[], &[]),
        ];
        let path = std::env::temp_dir().join(format!("whimbrel-chart-{}.svg", std::process::id()));
        Chart { columns: 2, panels }.draw(&path).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        for word in ["Overlap", "64 KiB", "CG.B", "adaptive", "</svg>"] {
            assert!(text.contains(word), "{word}");
        }
    }

    #[test]
    fn axes_hold_all_points_and_zero() {
        let (x, y) = panel(Shape::Lines, &["a", "b"], &[]).ranges(&[(0.0, 10.0), (1.0, -2.0)]);
        assert_eq!(x, -0.5..1.5);
        assert!(y.start < -2.0 && y.end > 10.0);
        let (x, y) = panel(Shape::Lines, &[], &[]).ranges(&[(100.0, 10.0)]);
        assert!(x.contains(&100.0) && y.start == 0.0);
    }
}
